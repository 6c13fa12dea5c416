/* Tests of workflows for ComfyUI: their graph, and the values in it. */
#include "json_failing.h"
#include "workflow_check.h"

#include "model/convert/workflow.h"
#include "wandistiller_status.h"

static wd_workflow example(int64_t channels)
{
    return (wd_workflow){.unet = "s.safetensors",
                         .clip = "umt5.safetensors",
                         .vae = "vae.safetensors",
                         .prompt = "a \"red\" apple, \xc3\xbc",
                         .latent_channels = channels,
                         .width = 832,
                         .height = 480,
                         .steps = 4,
                         .shift = 5.5,
                         .cfg = 1,
                         .sampler = "euler"};
}

static void graphs_are_whole(void **state)
{
    (void)state;
    wd_err err;
    json_t *json;
    for (int large = 0; large < 2; large++) {
        const wd_workflow w = example(large ? 48 : 16);
        wd_test_ok(wd_workflow_make(&json, &w, &err), &err);
        wd_test_check_workflow(json);
        const char *latent = large ? "Wan22ImageToVideoLatent" : "EmptyHunyuanLatentVideo";
        assert_int_equal(json_integer_value(wd_test_widget(json, latent, 0)), 832);
        assert_int_equal(json_integer_value(wd_test_widget(json, latent, 1)), 480);
        assert_int_equal(json_integer_value(wd_test_widget(json, latent, 2)), 1);
        assert_string_equal(json_string_value(wd_test_widget(json, "CLIPLoader", 1)), "wan");
        assert_string_equal(json_string_value(wd_test_widget(json, "UNETLoader", 0)), w.unet);
        assert_string_equal(json_string_value(wd_test_widget(json, "CLIPTextEncode", 0)), w.prompt);
        assert_true(json_real_value(wd_test_widget(json, "ModelSamplingSD3", 0)) == 5.5);
        assert_int_equal(json_integer_value(wd_test_widget(json, "KSampler", 2)), 4);
        assert_true(json_real_value(wd_test_widget(json, "KSampler", 3)) == 1);
        assert_string_equal(json_string_value(wd_test_widget(json, "KSampler", 4)), "euler");
        assert_string_equal(json_string_value(wd_test_widget(json, "KSampler", 5)), "simple");
        assert_true(json_real_value(wd_test_widget(json, "KSampler", 6)) == 1);
        json_decref(json);
    }
}

/* Bytes that are no UTF-8 are replaced: the graph stays whole. */
static void any_prompt_is_taken(void **state)
{
    (void)state;
    wd_err err;
    json_t *json;
    wd_workflow w = example(16);
    w.prompt = "\xff\xfe apple";
    wd_test_ok(wd_workflow_make(&json, &w, &err), &err);
    wd_test_check_workflow(json);
    json_decref(json);
}

/* ---- prompts ---- */

/* The text that ComfyUI gives to its tokenizer, or NULL where it reads weights or a choice: what
 * its frontend's processDynamicPrompt makes of the text, then comfy/sd1_clip.py. */
static char *read_by_comfyui(const char *text)
{
    static char page[256], out[256];
    size_t n = 0;
    for (const char *c = text; *c; c++) {     /* a backslash protects the next character */
        if (*c == '{') return NULL;           /* a choice */
        if (*c == '\\' && !c[1]) return NULL; /* it reads "undefined" behind the end */
        page[n++] = *c;
        if (*c == '\\') page[n++] = *++c;
    }
    page[n] = '\0';
    n = 0;
    for (const char *c = page; *c; c++) /* then backslashes go from before braces and bars */
        if (*c != '\\' || !c[1] || !strchr("{}|", c[1])) out[n++] = *c;
    out[n] = '\0';
    memcpy(page, out, n + 1);
    n = 0;
    for (const char *c = page; *c; c++) { /* in Python: \( and \) are characters */
        if (*c == '(' || *c == ')') return NULL;
        if (*c == '\\' && c[1] && strchr("()", c[1])) c++;
        out[n++] = *c;
    }
    while (n && out[n - 1] == ' ') n--; /* the tokenizer does not see spaces at the end */
    out[n] = '\0';
    return out;
}

static const char *prompt_of(const char *prompt)
{
    static char text[256];
    wd_err err;
    json_t *json;
    wd_workflow w = example(16);
    w.prompt = prompt;
    wd_test_ok(wd_workflow_make(&json, &w, &err), &err);
    snprintf(text, sizeof text, "%s", json_string_value(wd_test_widget(json, "CLIPTextEncode", 0)));
    json_decref(json);
    return text;
}

/* Parentheses are weights to ComfyUI and braces are choices, unless they are escaped; and it does
 * not clean a prompt as diffusers does. */
static void prompts_are_written_for_comfyui(void **state)
{
    (void)state;
    static const struct {
        const char *prompt, *written;
    } cases[] = {
        {"monkey (green) background", "monkey \\(green\\) background"},
        {"a \\(b\\) c", "a \\\\(b\\\\) c"},
        {"((a:1.3))", "\\(\\(a:1.3\\)\\)"},
        {"{a|b} c|d", "\\{a\\|b\\} c\\|d"},
        {"C:\\x", "C:\\x"},
        {"a\\", "a\\ "},
        {"  a &amp; \xe2\x80\x9c"
         "b\xe2\x80\x9d\n\tc ",
         "a & \"b\" c"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(prompt_of(cases[i].prompt), cases[i].written);
}

/* Every short text of the characters that mean something comes back, except braces behind an odd
 * number of backslashes, which cannot be written. */
static void comfyui_reads_what_was_meant(void **state)
{
    (void)state;
    static const char letters[] = "(){}|\\a";
    enum { LENGTH = 5, LETTERS = sizeof letters - 1 };
    int64_t texts = 1, read = 0;
    for (int i = 0; i < LENGTH; i++) texts *= LETTERS;
    for (int64_t t = 0; t < texts; t++) {
        char prompt[LENGTH + 1] = "";
        int64_t rest = t;
        int run = 0;
        bool has_trap = false;
        for (int i = 0; i < LENGTH; i++, rest /= LETTERS) {
            prompt[i] = letters[rest % LETTERS];
            has_trap |= prompt[i] == '{' && run % 2;
            run = prompt[i] == '\\' ? run + 1 : 0;
        }
        if (has_trap) continue;
        const char *found = read_by_comfyui(prompt_of(prompt));
        if (!found || strcmp(found, prompt)) fail_msg("%s is read as %s", prompt, found);
        read++;
    }
    assert_true(read > texts / 2);
}

static void keep(void *context, wd_log_level level, const char *text)
{
    if (level == WD_LOG_WARNING) snprintf(context, 256, "%s", text);
}

/* For comments, names of embeddings and some backslashes ComfyUI has no escape. */
static void what_cannot_be_written_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *prompt, *named; /* NULL: nothing to say */
    } cases[] = {
        {"a http://b", "has \"//\""},
        {"a /*b*/ c", "has \"/*\""},
        {"a / * /* b", NULL},
        {"embedding:x", "has \"embedding:\""},
        {"a embedding:x", "embedding:"},
        {"an (embedding:x", NULL},
        {"a\\{b", "has \"\\{\""},
        {"a\\\\{b", NULL},
    };
    char said[256];
    wd_log_to(keep, said, WD_LOG_WARNING);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        *said = '\0';
        (void)prompt_of(cases[i].prompt);
        if (cases[i].named ? !strstr(said, cases[i].named) : *said)
            fail_msg("of %s it is said: %s", cases[i].prompt, said);
    }
    wd_log_to(NULL, NULL, WD_LOG_INFO);
}

static wd_status make(wd_err *err)
{
    json_t *json;
    const wd_workflow w = example(16);
    WD_TRY(wd_workflow_make(&json, &w, err));
    json_decref(json);
    return WD_OK;
}

/* Without memory there is no graph, rather than one that lacks a node or a link. */
static void graphs_without_memory(void **state)
{
    (void)state;
    wd_test_json_failing(make, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_are_whole),
        cmocka_unit_test(any_prompt_is_taken),
        cmocka_unit_test(prompts_are_written_for_comfyui),
        cmocka_unit_test(comfyui_reads_what_was_meant),
        cmocka_unit_test(what_cannot_be_written_is_said),
        cmocka_unit_test(graphs_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
