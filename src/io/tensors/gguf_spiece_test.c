/* The tokenizer in a GGUF file makes the tokens of the spiece.model that it comes from; damaged
 * ones are refused by name. */
#include "gguf_forms.h"

#include "io/tensors/gguf.h"
#include "io/text/tokenizer.h"

enum { IDS = 64 };

static const char *write_file(wd_test_gguf *g)
{
    static char path[WD_PATH_MAX];
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_folder(), "tokenizer.gguf", &err), &err);
    wd_test_gguf_write(g, path);
    return path;
}

/* Makes the model of the file's metadata, and opens it. */
static wd_status open_file(wd_tokenizer **out, const char *path, wd_err *err)
{
    char *model;
    size_t bytes;
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open(&set, path, err), err);
    wd_status status = wd_gguf_spiece(&model, &bytes, set, err);
    wd_safetensors_close(set);
    if (status != WD_OK) return status;
    status = wd_tokenizer_open_model(out, model, bytes, path, err);
    wd_free(model);
    return status;
}

static void the_same_tokens(void **state)
{
    (void)state;
    static const char *const texts[] = {"red apple, blue background",
                                        "",
                                        "  two   spaces ",
                                        "\xe2\x98\x83 \xef\xbc\xa1 caf\xc3\xa9 na\xc3\xafve",
                                        "<extra_id_0> a </s> b",
                                        "xyzzy\t!?"};
    wd_err err;
    wd_tokenizer *here, *there;
    wd_test_gguf g = {0};
    wd_test_gguf_tokenizer(&g);
    wd_test_ok(open_file(&here, write_file(&g), &err), &err);
    char *model;
    size_t bytes;
    wd_test_ok(wd_file_read(&model, &bytes, WD_SOURCE_DIR "/models/wan-tiny/tokenizer/spiece.model",
                            1 << 24, &err),
               &err);
    wd_test_ok(wd_tokenizer_open_model(&there, model, bytes, "spiece.model", &err), &err);
    wd_free(model);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int32_t a[IDS], b[IDS];
        int64_t n, m;
        wd_test_ok(wd_tokenizer_encode(a, &n, here, texts[i], IDS, &err), &err);
        wd_test_ok(wd_tokenizer_encode(b, &m, there, texts[i], IDS, &err), &err);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
    }
    assert_int_equal(wd_tokenizer_pad_id(here), wd_tokenizer_pad_id(there));
    wd_tokenizer_close(here);
    wd_tokenizer_close(there);
}

/* A tokenizer of two tokens, in parts that a case may replace. */
typedef struct parts {
    const char *kind, *tokens_key;
    uint32_t score_type, scores, types, type, map_type;
    int32_t map;
} parts;

static const char *write_parts(const parts *p)
{
    wd_test_gguf g = {0};
    wd_test_bytes tokens = {0}, scores = {0}, types = {0}, map = {0};
    wd_test_text(&tokens, "<unk>");
    wd_test_text(&tokens, "a");
    wd_test_append(&scores, NULL, 4 * (size_t)p->scores);
    for (uint32_t i = 0; i < p->types; i++) wd_test_u32(&types, i ? 1 : p->type);
    wd_test_append(&map, &p->map, p->map_type ? 4 : 1);
    if (p->kind) wd_test_gguf_text(&g, "tokenizer.ggml.model", p->kind);
    wd_test_gguf_list(&g, p->tokens_key, 8, 2, &tokens);
    wd_test_gguf_list(&g, "tokenizer.ggml.scores", p->score_type, p->scores, &scores);
    wd_test_gguf_list(&g, "tokenizer.ggml.token_type", 5, p->types, &types);
    wd_test_gguf_list(&g, "tokenizer.ggml.precompiled_charsmap", p->map_type, 1, &map);
    free(tokens.data);
    free(scores.data);
    free(types.data);
    free(map.data);
    return write_file(&g);
}

static void damaged(void **state)
{
    (void)state;
    static const char tokens[] = "tokenizer.ggml.tokens";
    static const struct {
        parts parts;
        wd_status status;
        const char *named;
    } cases[] = {
        {{NULL, tokens, 6, 2, 2, 2, 5, 0}, WD_UNSUPPORTED, "no tokenizer"},
        {{"llama", tokens, 6, 2, 2, 2, 5, 0}, WD_UNSUPPORTED, "the kind \"llama\""},
        {{"t5", "tokenizer.ggml.others", 6, 2, 2, 2, 5, 0}, WD_BAD_FORMAT, "ggml.tokens"},
        {{"t5", tokens, 5, 2, 2, 2, 5, 0}, WD_BAD_FORMAT, "ggml.scores"},
        {{"t5", tokens, 6, 1, 2, 2, 5, 0}, WD_BAD_FORMAT, "ggml.scores"},
        {{"t5", tokens, 6, 2, 1, 2, 5, 0}, WD_BAD_FORMAT, "ggml.token_type"},
        {{"t5", tokens, 6, 2, 2, 0, 5, 0}, WD_BAD_FORMAT, "the type of a token"},
        {{"t5", tokens, 6, 2, 2, 7, 5, 0}, WD_BAD_FORMAT, "the type of a token"},
        {{"t5", tokens, 6, 2, 2, 2, 5, 256}, WD_BAD_FORMAT, "what is no byte"},
        {{"t5", tokens, 6, 2, 2, 2, 5, -1}, WD_BAD_FORMAT, "what is no byte"},
        {{"t5", tokens, 6, 2, 2, 2, 0, 1}, WD_BAD_FORMAT, "leads out of itself"},
        {{"t5", tokens, 6, 2, 2, 2, 1, 1}, WD_BAD_FORMAT, "leads out of itself"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_err err;
        wd_tokenizer *t;
        wd_test_refused(open_file(&t, write_parts(&cases[i].parts), &err), &err, cases[i].status,
                        cases[i].named);
    }
}

/* What another process writes into the file once it is open does not reach the model: lengths of
 * tokens size a buffer, and fill it. */
static void a_file_that_changes(void **state)
{
    (void)state;
    static const parts good = {"t5", "tokenizer.ggml.tokens", 6, 2, 2, 2, 5, 0};
    wd_err err;
    wd_safetensors *set;
    char *before, *after, *file;
    size_t before_bytes, after_bytes, bytes;
    const char *path = write_parts(&good);
    wd_test_ok(wd_file_read(&file, &bytes, path, 1 << 20, &err), &err);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd_test_ok(wd_gguf_spiece(&before, &before_bytes, set, &err), &err);
    size_t at = 0; /* of the token's text, behind its length */
    while (memcmp(file + at, "<unk>", 5)) at++;
    FILE *open_file = fopen(path, "r+b");
    assert_non_null(open_file);
    assert_int_equal(fseek(open_file, (long)at - 8, SEEK_SET), 0);
    assert_int_equal(fputc(4, open_file), 4);
    assert_int_equal(fclose(open_file), 0);
    wd_test_ok(wd_gguf_spiece(&after, &after_bytes, set, &err), &err);
    assert_int_equal(before_bytes, after_bytes);
    assert_memory_equal(before, after, after_bytes);
    wd_safetensors_close(set);
    wd_free(before);
    wd_free(after);
    wd_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens),
        cmocka_unit_test(damaged),
        cmocka_unit_test(a_file_that_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
