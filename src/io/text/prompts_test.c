/* Tests of reading prompts: text, JSON lines and folders as users have them, and hostile bytes. */
#include "failing.h"

#include "io/text/prompts.h"
#include "wandistiller_status.h"

/* Writes `bytes` to the file `name` of the test's folder and reads prompts from it. */
static wd_status read_bytes(wd_prompts *out, const char *name, const void *bytes, size_t count,
                            wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_test_ok(wd_path_join(path, wd_test_folder(), name, err), err);
    wd_test_ok(wd_file_write(path, bytes, count, err), err);
    return wd_prompts_open(out, path, NULL, err);
}

static wd_status read_text(wd_prompts *out, const char *name, const char *text, wd_err *err)
{
    return read_bytes(out, name, text, strlen(text), err);
}

static void expect(wd_prompts *prompts, int64_t count, const char *const *text)
{
    assert_int_equal(prompts->count, count);
    for (int64_t i = 0; i < count; i++) assert_string_equal(prompts->text[i], text[i]);
    wd_prompts_close(prompts);
}

static void reads_lines(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    wd_test_ok(read_text(&p, "a.txt",
                         "\xef\xbb\xbfred apple\r\n\r\n \t\u3000\nblue caf\u00e9 \rend", &err),
               &err);
    expect(&p, 3, (const char *[]){"red apple", "blue caf\u00e9 ", "end"});
    wd_test_ok(read_text(&p, "no-ending", "one\n", &err), &err);
    expect(&p, 1, (const char *[]){"one"});
    char path[WD_PATH_MAX];
    wd_test_ok(wd_path_join(path, WD_SOURCE_DIR, "models/wan-tiny/prompts.txt", &err), &err);
    wd_test_ok(wd_prompts_open(&p, path, NULL, &err), &err);
    assert_int_equal(p.count, 2160);
    wd_prompts_close(&p);
}

static void reads_json_lines(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    const char *text = "{\"prompt\": \"a \\\"b\\\"\\n\\u00e9\", \"seed\": 3}\r\n\n"
                       "{\"file_name\": \"1.png\", \"text\": \"second\"}\n{\"caption\": \"third\"}";
    wd_test_ok(read_text(&p, "p.jsonl", text, &err), &err);
    expect(&p, 3, (const char *[]){"a \"b\"\n\u00e9", "second", "third"});
    const char *missing = "{\"prompt\": \"x\"}\n{\"title\": \"y\"}\n";
    wd_test_refused(read_text(&p, "p.jsonl", missing, &err), &err, WD_BAD_FORMAT,
                    "p.jsonl: line 2");
    wd_test_refused(read_text(&p, "p.jsonl", "{\"prompt\": 3}", &err), &err, WD_BAD_FORMAT,
                    "\"prompt\"");
    wd_test_refused(read_text(&p, "p.jsonl", "\n{\"prompt\": \"x\"", &err), &err, WD_BAD_FORMAT,
                    "p.jsonl: line 2");
    wd_test_refused(read_text(&p, "p.jsonl", "[\"x\"]", &err), &err, WD_BAD_FORMAT, "line 1");
    wd_test_refused(read_text(&p, "p.jsonl", "{\"prompt\": \"a\\u0000b\"}", &err), &err,
                    WD_BAD_FORMAT, "line 1");
}

static void reads_tables(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    wd_test_ok(read_text(&p, "t.csv",
                         "\xef\xbb\xbfid,Caption,note\r\n"
                         "1,\"red, with \"\"quotes\"\"\",x\r\n\r\n"
                         "2,\"two\r\nlines\",\"a\nb\"\r\n3,,empty\r\n4,plain \"inside\", \n5,\"\",",
                         &err),
               &err);
    expect(&p, 3, (const char *[]){"red, with \"quotes\"", "two\r\nlines", "plain \"inside\""});
    wd_test_ok(read_text(&p, "t.tsv", "text\tprompt\na, b\tc, d\n", &err), &err);
    expect(&p, 1, (const char *[]){"c, d"}); /* prompt before text */
    wd_test_ok(read_text(&p, "one.csv", "prompt\nx", &err), &err);
    expect(&p, 1, (const char *[]){"x"});
}

static void refuses_wrong_tables(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"id,title\n1,x\n", "t.csv: line 1: expected the prompt under the column \"prompt\", "
                            "\"caption\" or \"text\", found \"id\", \"title\": call it prompt"},
        {"id,prompt\n1,\"a\nb\"\n2,x,y\n",
         "t.csv: line 4: expected 2 fields, as the first line has, "
         "found 3: put a text with separators into quotes"},
        {"id,prompt\n1,a\n2,\"b\nc\n", "t.csv: line 3: a quote (\") begins here and does not end"},
        {"id,prompt\n1,\"a\" b\n", "t.csv: line 2: expected a separator or the end of the line"},
        {"id,prompt\n1,a\n2,b\xff\n", "t.csv: line 3: expected text in UTF-8, found byte 0xff"},
        {"id,prompt\n1\n", "t.csv: line 2: expected 2 fields, as the first line has, found 1"},
        {"id;prompt\n1;a\n", "t.csv: line 1: expected columns with commas between them, found "
                             "semicolons"},
        {"prompt\n\n", "expected at least one prompt, found none"},
        {"", "expected at least one prompt, found none"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        wd_test_refused(read_text(&p, "t.csv", wrong[i].text, &err), &err, WD_BAD_FORMAT,
                        wrong[i].says);
    char wide[3 * 1024] = "prompt";
    memset(wide + 6, ',', 1024);
    wd_test_refused(read_text(&p, "t.csv", wide, &err), &err, WD_UNSUPPORTED,
                    "t.csv: line 1: more than 1024 fields");
}

static void reads_a_column(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    static const char table[] = "prompt,Long Text\na,b\n", lines[] = "{\"a\": \"x\"}\n";
    char path[WD_PATH_MAX];
    wd_test_ok(read_text(&p, "c.csv", table, &err), &err);
    expect(&p, 1, (const char *[]){"a"});
    wd_test_ok(wd_path_join(path, wd_test_folder(), "c.csv", &err), &err);
    wd_test_ok(wd_prompts_open(&p, path, "Long Text", &err), &err);
    expect(&p, 1, (const char *[]){"b"});
    wd_test_refused(wd_prompts_open(&p, path, "long text", &err), &err, WD_BAD_FORMAT,
                    "c.csv: line 1: expected the column \"long text\" (--prompt_column), found "
                    "\"prompt\", \"Long Text\"");
    wd_test_refused(read_text(&p, "c.jsonl", lines, &err), &err, WD_BAD_FORMAT, "found \"a\"");
    wd_test_ok(wd_path_join(path, wd_test_folder(), "c.jsonl", &err), &err);
    wd_test_ok(wd_prompts_open(&p, path, "a", &err), &err);
    expect(&p, 1, (const char *[]){"x"});
    wd_test_refused(wd_prompts_open(&p, path, "b", &err), &err, WD_BAD_FORMAT,
                    "c.jsonl: line 1: expected the key \"b\" (--prompt_column), found \"a\"");
    wd_test_ok(wd_path_join(path, wd_test_folder(), "c.txt", &err), &err);
    wd_test_ok(wd_file_write(path, "x", 1, &err), &err);
    wd_test_refused(wd_prompts_open(&p, path, "b", &err), &err, WD_INVALID_ARGUMENT,
                    "c.txt has one prompt a line, and no columns: leave the option out");
}

static void reads_arrays(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    wd_test_ok(read_text(&p, "a.json",
                         "\xef\xbb\xbf\n[ \"one, [two]\",\n {\"caption\": \"a \\\"}\\\"\", "
                         "\"tags\": [1, {\"x\": \"]\"}]},\n\"\", {\"text\": null}, \"end\" ]\n",
                         &err),
               &err);
    expect(&p, 3, (const char *[]){"one, [two]", "a \"}\"", "end"});
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"{\"prompt\": \"x\"}", "expected an array of texts or objects, found another value"},
        {"", "expected an array of texts or objects"},
        {"[]", "expected at least one prompt, found none"},
        {"[\"a\",\n3]",
         "a.json: element 2, which begins in line 2: expected an object or a text, found "
         "3"},
        {"[\"a\",\n\"b\",\n]",
         "element 3, which begins in line 3: expected an object or a text, found "
         "nothing"},
        {"[\"a\",\n\"b\"", "a.json: the array does not end: its element 2 begins in line 2"},
        {"[\"a\"]\n\n x", "a.json: line 3: text after the end of the array"},
        {"[\"a\" \"b\"]", "a.json: element 1, which begins in line 1"},
        {"[\"a\\", "the array does not end"},
        {"[{\"title\": \"y\"}]", "expected the prompt under the key \"prompt\""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        wd_test_refused(read_text(&p, "a.json", wrong[i].text, &err), &err, WD_BAD_FORMAT,
                        wrong[i].says);
}

/* prompts.txt before metadata.jsonl before caption files, these in the order of their names. */
static void reads_folders(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    char folder[WD_PATH_MAX];
    wd_test_ok(wd_path_join(folder, wd_test_folder(), "set", &err), &err);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_refused(wd_prompts_open(&p, folder, NULL, &err), &err, WD_NOT_FOUND, "prompts.txt");
    read_text(&p, "set/b.txt", "second\n", &err);
    wd_prompts_close(&p);
    read_text(&p, "set/a.TXT", "first", &err);
    wd_prompts_close(&p);
    assert_int_equal(read_text(&p, "set/c.txt", "", &err), WD_BAD_FORMAT);
    wd_test_ok(read_text(&p, "set/a.png", "no prompt", &err), &err);
    wd_prompts_close(&p);
    wd_test_ok(wd_prompts_open(&p, folder, NULL, &err), &err);
    expect(&p, 2, (const char *[]){"first", "second"});
    wd_test_refused(wd_prompts_open(&p, folder, "text", &err), &err, WD_INVALID_ARGUMENT,
                    "set has a caption in each file, and no columns");
    char table[WD_PATH_MAX];
    wd_test_ok(wd_path_join(table, wd_test_folder(), "table", &err), &err);
    wd_test_ok(wd_folder_make(table, &err), &err);
    wd_test_ok(read_text(&p, "table/metadata.csv", "file_name,text\na.png,x\n", &err), &err);
    wd_prompts_close(&p);
    wd_test_ok(wd_prompts_open(&p, table, NULL, &err), &err);
    expect(&p, 1, (const char *[]){"x"});
    wd_test_ok(read_text(&p, "set/metadata.jsonl", "{\"text\": \"from metadata\"}", &err), &err);
    wd_prompts_close(&p);
    wd_test_ok(wd_prompts_open(&p, folder, NULL, &err), &err);
    expect(&p, 1, (const char *[]){"from metadata"});
    wd_test_ok(read_text(&p, "set/prompts.txt", "from prompts", &err), &err);
    wd_prompts_close(&p);
    wd_test_ok(wd_prompts_open(&p, folder, NULL, &err), &err);
    expect(&p, 1, (const char *[]){"from prompts"});
}

static void keep(void *context, wd_log_level level, const char *text)
{
    char *said = context;
    snprintf(said + strlen(said), 1024 - strlen(said), "%s%s\n",
             level == WD_LOG_WARNING ? "warning: " : "", text);
}

/* A caption file is one prompt, whatever its lines; the log says what was read. */
static void captions_of_several_lines(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    char folder[WD_PATH_MAX], file[WD_PATH_MAX], said[1024] = "";
    wd_test_ok(wd_path_join(folder, wd_test_folder(), "captions", &err), &err);
    wd_test_ok(wd_path_join(file, folder, "1.txt", &err), &err);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    read_text(&p, "captions/1.txt", "A horse stands.\r\n\r\nThe sky is blue.\nIt is day.\n", &err);
    wd_prompts_close(&p);
    wd_log_to(keep, said, WD_LOG_INFO);
    wd_test_ok(wd_prompts_open(&p, folder, NULL, &err), &err);
    expect(&p, 1, (const char *[]){"A horse stands. The sky is blue. It is day."});
    assert_non_null(strstr(said, "1 caption from the folder "));
    assert_non_null(strstr(said, "warning: "));
    assert_non_null(strstr(said, "has 3 lines, which were taken as one prompt"));
    wd_log_to(NULL, NULL, WD_LOG_INFO);
    read_text(&p, "captions/2.txt", "\n \nA monkey.", &err);
    wd_prompts_close(&p);
    assert_int_equal(read_text(&p, "captions/3.txt", "\n\n", &err), WD_BAD_FORMAT);
    *said = '\0';
    wd_log_to(keep, said, WD_LOG_INFO);
    wd_test_ok(wd_prompts_open(&p, folder, NULL, &err), &err);
    expect(&p, 2, (const char *[]){"A horse stands. The sky is blue. It is day.", "A monkey."});
    assert_non_null(strstr(said, "2 captions from the folder "));
    assert_null(strstr(said, "warning: "));
    wd_test_ok(wd_prompts_open(&p, file, NULL, &err), &err);
    expect(&p, 3, (const char *[]){"A horse stands.", "The sky is blue.", "It is day."});
    assert_non_null(strstr(said, "3 prompts, one a line, from "));
    wd_log_to(NULL, NULL, WD_LOG_INFO);
}

/* All lines of a caption together have a limit. */
static void captions_have_an_end(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    void *text;
    char folder[WD_PATH_MAX];
    const size_t half = WD_PROMPT_BYTES_MAX / 2;
    wd_test_ok(wd_path_join(folder, wd_test_folder(), "long", &err), &err);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_alloc(&text, 2 * half + 1, 1, "a caption", &err), &err);
    memset(text, 'x', 2 * half + 1);
    ((char *)text)[half] = '\n';
    wd_test_ok(read_bytes(&p, "long/a.txt", text, 2 * half - 1, &err), &err);
    wd_prompts_close(&p);
    wd_test_ok(wd_prompts_open(&p, folder, NULL, &err), &err);
    assert_int_equal(strlen(p.text[0]), 2 * half - 1);
    wd_prompts_close(&p);
    wd_test_ok(read_bytes(&p, "long/a.txt", text, 2 * half + 1, &err), &err);
    wd_prompts_close(&p);
    wd_test_refused(wd_prompts_open(&p, folder, NULL, &err), &err, WD_UNSUPPORTED,
                    "a.txt: line 2: a caption of more than");
    wd_free(text);
}

static void refuses_what_is_no_prompts_file(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    wd_test_refused(wd_prompts_open(&p, "/nonexistent/p.txt", NULL, &err), &err, WD_NOT_FOUND,
                    "p.txt");
    wd_test_refused(read_text(&p, "e.txt", "", &err), &err, WD_BAD_FORMAT, "at least one prompt");
    wd_test_refused(read_text(&p, "e.txt", "\xef\xbb\xbf\n \r\n", &err), &err, WD_BAD_FORMAT,
                    "at least one prompt");
    wd_test_refused(read_text(&p, "l.txt", "ok\ncaf\351\n", &err), &err, WD_BAD_FORMAT,
                    "l.txt: line 2: expected text in UTF-8, found byte 0xe9 at position 4");
    wd_test_refused(read_bytes(&p, "n.txt", "ok\r\na\0b", 7, &err), &err, WD_BAD_FORMAT,
                    "line 2: expected text, found a zero byte (NUL)");
    wd_test_refused(read_text(&p, "u.txt",
                              "\xff\xfe"
                              "a",
                              &err),
                    &err, WD_BAD_FORMAT, "UTF-16");
    wd_test_refused(read_text(&p, "t.parquet", "PAR1", &err), &err, WD_UNSUPPORTED, ".parquet");
    wd_test_refused(read_text(&p, "s.txt", "\355\240\200", &err), &err, WD_BAD_FORMAT, "0xed");
    wd_test_refused(read_text(&p, "s.txt", "x\xe2\x82", &err), &err, WD_BAD_FORMAT, "position 2");
}

static void reads_a_mebibyte_and_no_more(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    void *text;
    wd_test_ok(wd_alloc(&text, WD_PROMPT_BYTES_MAX + 1, 1, "a prompt", &err), &err);
    memset(text, 'x', WD_PROMPT_BYTES_MAX + 1);
    wd_test_ok(read_bytes(&p, "long.txt", text, WD_PROMPT_BYTES_MAX, &err), &err);
    assert_int_equal(strlen(p.text[0]), WD_PROMPT_BYTES_MAX);
    wd_prompts_close(&p);
    wd_test_refused(read_bytes(&p, "long.txt", text, WD_PROMPT_BYTES_MAX + 1, &err), &err,
                    WD_UNSUPPORTED, "long.txt: line 1: a prompt of 1048577 bytes");
    wd_free(text);
}

static wd_status read_many(void *path, wd_err *err)
{
    wd_prompts p;
    WD_TRY(wd_prompts_open(&p, path, NULL, err));
    assert_int_equal(p.count, 1000);
    wd_prompts_close(&p);
    wd_prompts_close(&p); /* twice is fine */
    return WD_OK;
}

static void nth_allocation_fails(void **state)
{
    (void)state;
    wd_err err;
    wd_prompts p;
    char path[WD_PATH_MAX];
    static char text[20000];
    for (size_t i = 0; i + 1 < sizeof text; i++) text[i] = i % 20 ? 'x' : '\n';
    wd_test_ok(read_text(&p, "many.txt", text, &err), &err);
    wd_prompts_close(&p);
    wd_test_ok(wd_path_join(path, wd_test_folder(), "many.txt", &err), &err);
    wd_test_failing_allocations(read_many, NULL, path, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_lines),
        cmocka_unit_test(reads_json_lines),
        cmocka_unit_test(reads_tables),
        cmocka_unit_test(refuses_wrong_tables),
        cmocka_unit_test(reads_a_column),
        cmocka_unit_test(reads_arrays),
        cmocka_unit_test(reads_folders),
        cmocka_unit_test(captions_of_several_lines),
        cmocka_unit_test(captions_have_an_end),
        cmocka_unit_test(refuses_what_is_no_prompts_file),
        cmocka_unit_test(reads_a_mebibyte_and_no_more),
        cmocka_unit_test(nth_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
