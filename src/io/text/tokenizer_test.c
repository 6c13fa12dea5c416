/* Tests of the tokenizer: ids are those of transformers 5.23's T5Tokenizer on models/wan-tiny, the
 * pipeline fixture's among them. */
#include "failing.h"

#include "core/stop.h"
#include "io/text/tokenizer.h"

enum { IDS_MAX = 64 };

static wd_tokenizer *open_tiny(void)
{
    wd_err err;
    wd_tokenizer *t = NULL;
    wd_test_ok(wd_tokenizer_open(&t, WD_SOURCE_DIR "/models/wan-tiny/tokenizer", &err), &err);
    return t;
}

typedef struct known {
    const char *text;
    int count;
    int32_t ids[24];
} known;

static const known cases[] = {
    /* tests/fixtures/pipeline */
    {"red apple, blue background", 13, {22, 5, 10, 124, 19, 3, 25, 7, 6, 4, 8, 5, 1}},
    {"Cr\u00e8me br\u00fbl\u00e9e & a \"fox\", green background",
     24,
     {116, 44, 2, 150, 7, 44, 2, 51, 2, 12, 10, 2, 55, 10, 2, 71, 33, 67, 2, 3, 17, 7, 6, 1}},
    {"penguin, white background", 13, {123, 288, 112, 3, 21, 26, 12, 7, 6, 4, 8, 5, 1}},
    {"", 1, {1}},
    {"  ", 1, {1}},
    {"a  b   c", 4, {55, 7, 75, 1}},
    {"\u65e5\u672c\u8a9e caf\u00e9 \u00bd", 9, {10, 2, 153, 71, 2, 117, 2, 470, 1}},
    {"x</s>y <pad><unk> z", 8, {10, 67, 1, 20, 0, 2, 76, 1}},
    {"<extra_id_0>", 12, {10, 2, 280, 43, 367, 2, 47, 5, 2, 165, 2, 1}},
    {"\u2581a\u2581b \u2581", 3, {55, 7, 1}},
    {"penguin \U0001f600\U0001f600 white", 9, {123, 288, 112, 10, 2, 21, 26, 12, 1}},
    {"</s>", 2, {1, 1}},
    {"\uff21\uff11 \ufdfa", 11, {89, 471, 10, 2, 10, 2, 10, 2, 10, 2, 1}},
    {"red\u200bapple\u00a0pie", 9, {22, 5, 10, 124, 19, 36, 47, 12, 1}},
};

static void ids_equal_the_reference(void **state)
{
    (void)state;
    wd_err err;
    wd_tokenizer *t = open_tiny();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t ids[24];
        int64_t count;
        wd_test_ok(wd_tokenizer_encode(ids, &count, t, cases[i].text, 24, &err), &err);
        assert_int_equal(count, cases[i].count);
        assert_memory_equal(ids, cases[i].ids, (size_t)count * sizeof *ids);
    }
    wd_tokenizer_close(t);
}

/* Any length: the first ids, then </s>; nothing is written behind. */
static void cuts_at_any_length(void **state)
{
    (void)state;
    wd_err err;
    wd_tokenizer *t = open_tiny();
    const known *k = &cases[0];
    for (int64_t length = 1; length <= 16; length++) {
        int32_t ids[IDS_MAX];
        int64_t count;
        for (int i = 0; i < IDS_MAX; i++) ids[i] = -7;
        wd_test_ok(wd_tokenizer_encode(ids, &count, t, k->text, length, &err), &err);
        assert_int_equal(count, length < k->count ? length : k->count);
        assert_memory_equal(ids, k->ids, (size_t)(count - 1) * sizeof *ids);
        assert_int_equal(ids[count - 1], 1);
        assert_int_equal(ids[count], -7);
    }
    int32_t ids[4];
    int64_t count;
    wd_test_ok(wd_tokenizer_encode(ids, &count, t, "</s></s><pad><unk><unk>", 4, &err), &err);
    const int32_t specials[4] = {1, 1, 0, 1};
    assert_int_equal(count, 4);
    assert_memory_equal(ids, specials, sizeof specials);
    wd_tokenizer_close(t);
}

static void takes_a_mebibyte(void **state)
{
    (void)state;
    wd_err err;
    wd_tokenizer *t = open_tiny();
    const size_t bytes = 1 << 20;
    void *block;
    wd_test_ok(wd_alloc(&block, bytes + 1, 1, "a prompt", &err), &err);
    char *text = block;
    for (size_t i = 0; i < bytes; i++) text[i] = "red < apple "[i % 12];
    int32_t ids[IDS_MAX];
    int64_t count;
    wd_test_ok(wd_tokenizer_encode(ids, &count, t, text, IDS_MAX, &err), &err);
    assert_int_equal(count, IDS_MAX);
    wd_free(block);
    wd_tokenizer_close(t);
}

/* Fills `bytes` of a new text with repetitions of `unit`. */
static char *repeat(const char *unit, size_t bytes)
{
    wd_err err;
    void *block;
    const size_t each = strlen(unit);
    wd_test_ok(wd_alloc(&block, bytes + 64, 1, "a prompt", &err), &err);
    for (size_t i = 0; i + each <= bytes; i += each) memcpy((char *)block + i, unit, each);
    return block;
}

/* SentencePiece's time grows with the square of the unknown characters that it gets at once. No
 * part is longer than the bound, whatever the text; parts end before spaces, where there are any,
 * and never inside a character. */
static void parts_are_short(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        char next; /* the byte with which all parts but the first begin */
    } texts[] = {{"red apple ", ' '}, {"\U0001f600", '\xf0'}, {"\u65e5\u672c", 0}, {"x", 'x'}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *text = repeat(texts[i].unit, 1 << 20);
        const size_t bytes = strlen(text);
        size_t parts = 0;
        for (size_t at = 0, part; at < bytes; at += part, parts++) {
            part = wd__tokenizer_part(text + at, bytes - at);
            assert_in_range(part, 1, WD_TOKENIZER_PART_BYTES);
            if (at && texts[i].next) assert_int_equal(text[at], texts[i].next);
            assert_true(((unsigned char)text[at] & 0xc0) != 0x80);
        }
        assert_in_range(parts, 128, 130);
        wd_free(text);
    }
    assert_int_equal(wd__tokenizer_part("abc def", 7), 7);
}

/* The ids of a long text are those of its words one after another. */
static void parts_do_not_change_ids(void **state)
{
    (void)state;
    enum { WORDS = 12000, ROOM = 10 * WORDS };
    static const char *const words[] = {"red", "apple,", "\u65e5\u672c", "zipper-mouth",
                                        "\U0001f600"};
    static int32_t whole[ROOM], single[ROOM];
    wd_err err;
    wd_tokenizer *t = open_tiny();
    int64_t used = 0, count;
    char *text = repeat(" ", WORDS * 16), *end = text;
    for (int i = 0; i < WORDS; i++) {
        const char *word = words[i * 7919 / 3 % 5];
        end += sprintf(end, "%s%s", i ? " " : "", word);
        wd_test_ok(wd_tokenizer_encode(single + used, &count, t, word, 64, &err), &err);
        used += count - 1; /* less </s> */
    }
    assert_true(end - text > 8 * WD_TOKENIZER_PART_BYTES);
    wd_test_ok(wd_tokenizer_encode(whole, &count, t, text, ROOM, &err), &err);
    assert_int_equal(count, used + 1);
    assert_memory_equal(whole, single, (size_t)used * sizeof *whole);
    wd_free(text);
    wd_tokenizer_close(t);
}

/* Unknown characters are one token, however many; what is behind them is seen. In one part this
 * would take hours. A request to stop is heard meanwhile. */
static void a_mebibyte_of_unknown_characters(void **state)
{
    (void)state;
    static const int32_t expected[] = {10, 2, 22, 5, 1};
    int32_t ids[IDS_MAX];
    int64_t count;
    wd_err err;
    wd_tokenizer *t = open_tiny();
    char *text = repeat("\U0001f600", 1 << 20);
    strcat(text, " red");
    wd_test_ok(wd_tokenizer_encode(ids, &count, t, text, IDS_MAX, &err), &err);
    assert_int_equal(count, 5);
    assert_memory_equal(ids, expected, sizeof expected);
    wd_request_stop();
    const wd_status status = wd_tokenizer_encode(ids, &count, t, text, IDS_MAX, &err);
    wd__stop_forget();
    wd_test_refused(status, &err, WD_INTERRUPTED, "stopped on request");
    wd_free(text);
    wd_tokenizer_close(t);
}

/* A folder with wan-tiny's spiece.model and the given tokenizer_config.json (NULL: none). */
static wd_status open_with(wd_tokenizer **out, const char *config, wd_err *err)
{
    char folder[WD_PATH_MAX], path[WD_PATH_MAX];
    wd_test_ok(wd_path_join(folder, wd_test_folder(), "tokenizer", err), err);
    wd_test_ok(wd_folder_remove(folder, err), err);
    wd_test_ok(wd_folder_make(folder, err), err);
    wd_test_ok(wd_path_join(path, folder, "spiece.model", err), err);
    wd_test_ok(wd_file_copy(path, WD_SOURCE_DIR "/models/wan-tiny/tokenizer/spiece.model", err),
               err);
    wd_test_ok(wd_path_join(path, folder, "tokenizer_config.json", err), err);
    if (config) wd_test_ok(wd_file_write(path, config, strlen(config), err), err);
    return wd_tokenizer_open(out, folder, err);
}

static void encodes(const char *config, const char *text, int64_t expected_count,
                    const int32_t *expected)
{
    wd_err err;
    wd_tokenizer *t = NULL;
    int32_t ids[IDS_MAX];
    int64_t count;
    wd_test_ok(open_with(&t, config, &err), &err);
    wd_test_ok(wd_tokenizer_encode(ids, &count, t, text, IDS_MAX, &err), &err);
    assert_int_equal(count, expected_count);
    assert_memory_equal(ids, expected, (size_t)count * sizeof *ids);
    wd_tokenizer_close(t);
}

static void reads_configurations(void **state)
{
    (void)state;
    const char *text = "a<extra_id_1>b<extra_id_0>";
    /* transformers 4, as the Hub's files are */
    const char *decoder =
        "{\"added_tokens_decoder\": {\"0\": {\"content\": \"<pad>\", \"lstrip\": false},"
        " \"1\": {\"content\": \"</s>\"}, \"2\": {\"content\": \"<unk>\"},"
        " \"500\": {\"content\": \"<extra_id_1>\"}, \"501\": {\"content\": \"<extra_id_0>\"}},"
        " \"eos_token\": {\"content\": \"</s>\", \"lstrip\": false},"
        " \"model_max_length\": 1000000000000000019884624838656}";
    encodes(decoder, text, 5, (const int32_t[]){55, 500, 7, 501, 1});
    /* counted from the vocabulary's end: 476 pieces, the last first */
    encodes("{\"extra_ids\": 2, \"model_max_length\": 512}", text, 5,
            (const int32_t[]){55, 476, 7, 477, 1});
    /* the longest of those that the text begins with, whatever their order */
    const char *nested = "{\"added_tokens_decoder\": {\"500\": \"<a\", \"501\": \"<abc\","
                         " \"502\": \"<ab\", \"503\": \"<abd>\", \"504\": \"\u65e5\"}}";
    encodes(nested, "<abc<ab<abd>\u65e5<a<ab<abc", 8,
            (const int32_t[]){501, 502, 503, 504, 500, 502, 501, 1});
    encodes(NULL, "<extra_id_0><extra_id_99>", 3, (const int32_t[]){476 + 99, 476, 1});
    wd_err err;
    wd_tokenizer *t = NULL;
    wd_test_ok(open_with(&t, "{\"pad_token\": \"</s>\"}", &err), &err);
    assert_int_equal(wd_tokenizer_pad_id(t), 1);
    wd_tokenizer_close(t);
    t = open_tiny();
    assert_int_equal(wd_tokenizer_pad_id(t), 0);
    wd_tokenizer_close(t);
}

static void refuses_bad_folders(void **state)
{
    (void)state;
    wd_err err;
    wd_tokenizer *t = NULL;
    char path[WD_PATH_MAX];
    wd_test_refused(open_with(&t, "{\"extra_ids\": -1}", &err), &err, WD_BAD_FORMAT, "extra_ids");
    wd_test_refused(open_with(&t, "{\"extra_ids\": 2049}", &err), &err, WD_BAD_FORMAT,
                    "\"extra_ids\" from 0 to 2048");
    wd_test_refused(open_with(&t, "{\"extra_ids\": 1e300}", &err), &err, WD_BAD_FORMAT,
                    "\"extra_ids\" from 0 to 2048");
    wd_test_refused(open_with(&t, "{\"eos_token\": 3}", &err), &err, WD_BAD_FORMAT, "eos_token");
    wd_test_refused(open_with(&t, "{\"eos_token\": \"<end>\"}", &err), &err, WD_MISMATCH, "<end>");
    wd_test_refused(open_with(&t, "{\"added_tokens_decoder\": {\"x\": \"y\"}}", &err), &err,
                    WD_BAD_FORMAT, "added_tokens_decoder");
    wd_test_refused(open_with(&t, "{\"added_tokens_decoder\": {\"99999999999\": \"y\"}}", &err),
                    &err, WD_BAD_FORMAT, "99999999999");
    wd_test_refused(open_with(&t, "{\"added_tokens_decoder\": {\"7\": \"\"}}", &err), &err,
                    WD_BAD_FORMAT, "expected 1 to 127 bytes");
    wd_test_refused(open_with(&t, "[]", &err), &err, WD_BAD_FORMAT, "tokenizer_config.json");
    wd_test_refused(open_with(&t, "{\"a\": ", &err), &err, WD_BAD_FORMAT, "line 1");
    wd_test_refused(wd_tokenizer_open(&t, wd_test_folder(), &err), &err, WD_NOT_FOUND,
                    "spiece.model");
    wd_test_ok(wd_path_join(path, wd_test_folder(), "tokenizer.json", &err), &err);
    wd_test_ok(wd_file_write(path, "{}", 2, &err), &err);
    wd_test_refused(wd_tokenizer_open(&t, wd_test_folder(), &err), &err, WD_UNSUPPORTED,
                    "spiece.model");
    assert_null(t);
}

/* A model cut short is refused, wherever the cut. */
static void refuses_cut_models(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX], *model;
    size_t bytes;
    wd_test_ok(wd_file_read(&model, &bytes, WD_SOURCE_DIR "/models/wan-tiny/tokenizer/spiece.model",
                            1 << 20, &err),
               &err);
    wd_test_ok(wd_path_join(path, wd_test_folder(), "damaged", &err), &err);
    wd_test_ok(wd_folder_make(path, &err), &err);
    wd_test_ok(wd_path_join(path, wd_test_folder(), "damaged/spiece.model", &err), &err);
    for (size_t cut = 0; cut < bytes; cut += 1 + bytes / 20) {
        char folder[WD_PATH_MAX];
        wd_tokenizer *t = NULL;
        wd_test_ok(wd_file_write(path, model, cut, &err), &err);
        wd_test_ok(wd_path_join(folder, wd_test_folder(), "damaged", &err), &err);
        wd_status status = wd_tokenizer_open(&t, folder, &err);
        assert_true(status == WD_BAD_FORMAT || status == WD_MISMATCH);
        assert_null(t);
    }
    wd_free(model);
}

static wd_status open_and_close(void *context, wd_err *err)
{
    (void)context;
    wd_tokenizer *t;
    WD_TRY(wd_tokenizer_open(&t, WD_SOURCE_DIR "/models/wan-tiny/tokenizer", err));
    wd_tokenizer_close(t);
    return WD_OK;
}

static void nth_allocation_fails(void **state)
{
    (void)state;
    wd_test_failing_allocations(open_and_close, NULL, NULL, 4);
    wd_tokenizer_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_equal_the_reference),
        cmocka_unit_test(cuts_at_any_length),
        cmocka_unit_test(takes_a_mebibyte),
        cmocka_unit_test(parts_are_short),
        cmocka_unit_test(parts_do_not_change_ids),
        cmocka_unit_test(a_mebibyte_of_unknown_characters),
        cmocka_unit_test(reads_configurations),
        cmocka_unit_test(refuses_bad_folders),
        cmocka_unit_test(refuses_cut_models),
        cmocka_unit_test(nth_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
