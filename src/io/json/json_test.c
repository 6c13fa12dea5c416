/* JSON files that are too large are refused before they are parsed, and values in messages are cut,
 * but never wrong. */
#include "testing.h"

#include "io/json/json.h"

enum { VALUES_MAX = 1 << 18 };

/* "[0,0,...]" of `count` values. */
static char *array_of(int64_t count)
{
    char *text = malloc((size_t)count * 2 + 2);
    text[0] = '[';
    for (int64_t i = 0; i < count; i++) memcpy(text + 1 + 2 * i, "0,", 2);
    strcpy(text + 2 * count, "]");
    return text;
}

static void limits_are_named(void **state)
{
    (void)state;
    wd_err err;
    json_t *json;
    char *text = array_of(VALUES_MAX - 1);
    wd_test_ok(wd_json_parse(&json, text, strlen(text), "most", &err), &err);
    assert_int_equal(json_array_size(json), VALUES_MAX - 1);
    json_decref(json);
    free(text);
    text = array_of(VALUES_MAX);
    wd_test_refused(wd_json_parse(&json, text, strlen(text), "many", &err), &err, WD_BAD_FORMAT,
                    "many: JSON has more than 262144 values");
    free(text);
    const size_t large = (16 << 20) + 1;
    text = malloc(large);
    memset(text, ' ', large);
    wd_test_refused(wd_json_parse(&json, text, large, "large", &err), &err, WD_BAD_FORMAT,
                    "large: JSON of 16777217 bytes, expected at most 16777216");
    free(text);
    char deep[65];
    memset(deep, '[', sizeof deep);
    wd_test_refused(wd_json_parse(&json, deep, sizeof deep, "deep", &err), &err, WD_BAD_FORMAT,
                    "deep: JSON nests deeper than 64 levels");
}

/* Commas and brackets in strings are no values. */
static void strings_count_once(void **state)
{
    (void)state;
    wd_err err;
    json_t *json;
    char *text = array_of(VALUES_MAX + 1);
    text[0] = '"';
    text[strlen(text) - 1] = '"';
    char *object = malloc(strlen(text) + 16);
    sprintf(object, "{\"a\": %s}", text);
    wd_test_ok(wd_json_parse(&json, object, strlen(object), "string", &err), &err);
    json_decref(json);
    free(object);
    free(text);
}

static void shown_values_are_cut(void **state)
{
    (void)state;
    char out[16];
    json_t *value = json_string("123456789012345678901234567890");
    memset(out, 'x', sizeof out);
    assert_string_equal(wd_json_show(out, sizeof out, value), "\"12345678901...");
    json_decref(value);
    value = json_pack("[i,i,i,i,i,i,i,i,i]", 1, 2, 3, 4, 5, 6, 7, 8, 9);
    assert_string_equal(wd_json_show(out, sizeof out, value), "[1,2,3,4,5,6...");
    json_decref(value);
    value = json_real(0.1);
    assert_string_equal(wd_json_show(out, sizeof out, value), "0.1");
    json_decref(value);
    value = json_string("\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5");
    wd_json_show(out, sizeof out, value); /* a character is cut as a whole */
    assert_null(strchr(out, '\xff'));
    const size_t n = strlen(out);
    assert_true(n < sizeof out && (n - 1 - 3) % 3 == 0 && !strcmp(out + n - 3, "..."));
    json_decref(value);
}

/* The message must hold the value's beginning and nothing that happened to be on the stack. */
static void messages_show_the_value(void **state)
{
    (void)state;
    wd_err err;
    json_t *json;
    char text[256] = "{\"key\": \"";
    memset(text + strlen(text), 'A', 100);
    strcat(text, "\"}");
    wd_test_ok(wd_json_parse(&json, text, strlen(text), "file", &err), &err);
    int64_t number;
    const wd_status status =
        wd_json_int(&number, (wd_json_reader){json, "file"}, "key", 0, 1, WD_JSON_REQUIRED, &err);
    wd_test_refused(status, &err, WD_BAD_FORMAT, "found \"AAAAAAAA");
    const char *found = strstr(err.message, "found ") + strlen("found ");
    assert_int_equal(strspn(found, "\"A"), strlen(found) - 3);
    assert_string_equal(found + strlen(found) - 3, "...");
    json_decref(json);
}

/* A path may be Latin-1, or be cut within a character. */
static void strings_are_made_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"", ""},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"caf\xe9/x", "caf\xef\xbf\xbd/x"},
        {"\xe9\xe9", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"cut \xe6\x97", "cut \xef\xbf\xbd\xef\xbf\xbd"},
        {"\xff\xc3\xa9", "\xef\xbf\xbd\xc3\xa9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *json = wd_json_string(cases[i].text);
        assert_non_null(json);
        assert_string_equal(json_string_value(json), cases[i].json);
        json_decref(json);
    }
    wd__alloc_fail_at(1);
    assert_null(wd_json_string("\xe9"));
    wd__alloc_fail_at(0);
}

static void a_byte_order_mark_is_skipped(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    json_t *json;
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_folder(), "marked.json", &err), &err);
    wd_test_ok(wd_file_write(path, "\xef\xbb\xbf{\"a\": 7}", 11, &err), &err);
    wd_test_ok(wd_json_load(&json, path, &err), &err);
    assert_int_equal(json_integer_value(json_object_get(json, "a")), 7);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_byte_order_mark_is_skipped), cmocka_unit_test(limits_are_named),
        cmocka_unit_test(strings_count_once),           cmocka_unit_test(shown_values_are_cut),
        cmocka_unit_test(messages_show_the_value),      cmocka_unit_test(strings_are_made_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
