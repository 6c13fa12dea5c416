/* Tests of finding models: folders, the Hub cache, and the error when nothing is found. */
#include "testing.h"

#include "io/file/hub.h"

#include <unistd.h>

static const char commit[] = "0123456789abcdef0123456789abcdef01234567";

static const char *below(char path[WD_PATH_MAX], const char *name)
{
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_folder(), name, &err), &err);
    return path;
}

static void clear_environment(void)
{
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
}

/* A cache with org/model at main and at refs/pr/1; returns the snapshot. */
static const char *make_cache(char snapshot[WD_PATH_MAX], const char *cache)
{
    wd_err err;
    char path[WD_PATH_MAX], name[512];
    snprintf(name, sizeof name, "%s/models--org--model.1/snapshots/%s", cache, commit);
    wd_test_ok(wd_folder_make(below(snapshot, name), &err), &err);
    snprintf(name, sizeof name, "%s/models--org--model.1/refs/refs/pr", cache);
    wd_test_ok(wd_folder_make(below(path, name), &err), &err);
    snprintf(name, sizeof name, "%s/models--org--model.1/refs/main", cache);
    wd_test_ok(wd_file_write(below(path, name), commit, strlen(commit), &err), &err);
    snprintf(name, sizeof name, "%s/models--org--model.1/refs/refs/pr/1", cache);
    wd_test_ok(wd_file_write(below(path, name), commit, strlen(commit), &err), &err);
    return snapshot;
}

static void finds_by_each_variable(void **state)
{
    (void)state;
    wd_err err;
    char want[WD_PATH_MAX], found[WD_PATH_MAX], value[WD_PATH_MAX];
    static const struct {
        const char *variable, *value, *cache;
    } cases[] = {
        {"HOME", "home", "home/.cache/huggingface/hub"},
        {"XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"},
        {"HF_HOME", "hf", "hf/hub"},
        {"HUGGINGFACE_HUB_CACHE", "old", "old"},
        {"HF_HUB_CACHE", "new", "new"},
    };
    clear_environment();
    for (size_t i = 0; i < sizeof cases / sizeof *cases;
         i++) { /* each takes precedence over the earlier ones */
        setenv(cases[i].variable, below(value, cases[i].value), 1);
        wd_test_refused(wd_hub_find(found, "org/model.1", &err), &err, WD_NOT_FOUND,
                        cases[i].cache);
        make_cache(want, cases[i].cache);
        wd_test_ok(wd_hub_find(found, "org/model.1", &err), &err);
        assert_string_equal(found, want);
    }
    wd_test_ok(wd_hub_find(found, "org/model.1@refs/pr/1", &err), &err);
    assert_string_equal(found, want);
    char with_commit[128];
    snprintf(with_commit, sizeof with_commit, "org/model.1@%s", commit);
    wd_test_ok(wd_hub_find(found, with_commit, &err), &err);
    assert_string_equal(found, want);
    clear_environment();
    setenv("HF_HOME", "~/.cache/huggingface", 1);
    wd_test_ok(wd_hub_find(found, "org/model.1", &err), &err);
    assert_string_equal(found, make_cache(want, "home/.cache/huggingface/hub"));
    static const char *const texts[] = {"$HOME/.cache/${WD_TEST_NAME}/hub",
                                        "~/.cache/$WD_TEST_NAME/hub"};
    setenv("WD_TEST_NAME", "huggingface", 1);
    for (int i = 0; i < 2; i++) {
        clear_environment();
        setenv("HF_HUB_CACHE", texts[i], 1);
        wd_test_ok(wd_hub_find(found, "org/model.1", &err), &err);
        assert_string_equal(found, want);
    }
    setenv("HF_HUB_CACHE", "/none/$WD_TEST_UNSET/${WD_TEST_NAME/$", 1);
    wd_test_refused(wd_hub_find(found, "org/model.1", &err), &err, WD_NOT_FOUND,
                    "/none/$WD_TEST_UNSET/${WD_TEST_NAME/$/models--org--model.1");
    clear_environment();
}

static void folders_come_first(void **state)
{
    (void)state;
    wd_err err;
    char found[WD_PATH_MAX], path[WD_PATH_MAX];
    wd_test_ok(wd_folder_make(below(path, "org/local"), &err), &err);
    assert_int_equal(chdir(wd_test_folder()), 0);
    wd_test_ok(wd_hub_find(found, "org/local", &err), &err);
    assert_string_equal(found, "org/local");
    wd_test_ok(wd_file_write(below(path, "a-file"), "x", 1, &err), &err);
    wd_test_refused(wd_hub_find(found, path, &err), &err, WD_INVALID_ARGUMENT, "is a file");
}

static void says_how_to_get_it(void **state)
{
    (void)state;
    wd_err err;
    char found[WD_PATH_MAX];
    wd_test_refused(wd_hub_find(found, "timbrooks/instruct-wan", &err), &err, WD_NOT_FOUND,
                    "Wan-AI/Wan2.1-T2V-1.3B-Diffusers");
    wd_test_refused(wd_hub_find(found, "Wan-AI/Nothing", &err), &err, WD_NOT_FOUND,
                    "hf download Wan-AI/Nothing-Diffusers"); /* not the original format */
    wd_test_refused(wd_hub_find(found, "Wan-AI/Any-Diffusers", &err), &err, WD_NOT_FOUND,
                    "hf download Wan-AI/Any-Diffusers");
    assert_null(strstr(err.message, "-Diffusers-Diffusers"));
    wd_test_refused(wd_hub_find(found, "org/nothing@v2", &err), &err, WD_NOT_FOUND,
                    "hf download org/nothing --revision v2");
    wd_test_refused(wd_hub_find(found, "org/nothing@v 2;ls", &err), &err, WD_NOT_FOUND,
                    "hf download org/nothing --revision 'v 2;ls'");
    static const char *const no_ids[] = {"none",   "/a/b",  "./a", "a/b/c", "a/",
                                         "../etc", "a b/c", "",    "a/b@",  "a/b@../../x"};
    for (size_t i = 0; i < sizeof no_ids / sizeof *no_ids; i++)
        wd_test_refused(wd_hub_find(found, no_ids[i], &err), &err, WD_NOT_FOUND, "no such folder");
}

/* A reference must be one name, so that it cannot lead to another folder. */
static void references_lead_nowhere_else(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "\n", "..", ".", "../../x", "/etc", "a/b", ".hidden"};
    wd_err err;
    char found[WD_PATH_MAX], path[WD_PATH_MAX], snapshot[WD_PATH_MAX];
    clear_environment();
    make_cache(snapshot, "bad");
    setenv("HF_HUB_CACHE", below(path, "bad"), 1);
    wd_test_ok(wd_hub_find(found, "org/model.1", &err), &err);
    below(path, "bad/models--org--model.1/refs/main");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wd_test_ok(wd_file_write(path, bad[i], strlen(bad[i]), &err), &err);
        wd_test_refused(wd_hub_find(found, "org/model.1", &err), &err, WD_BAD_FORMAT,
                        "refs/main: expected the name of a commit");
    }
    clear_environment();
}

/* The line that brings a file of a snapshot. */
static void advises_a_download(void **state)
{
    (void)state;
    static const struct {
        const char *path, *file, *advice;
    } cases[] = {
        {"/c/models--org--model.1/snapshots/abc/vae/x.safetensors", NULL,
         "; to download it: hf download org/model.1 vae/x.safetensors --revision abc"},
        {"models--a--b--c/snapshots/1", "vae/config.json",
         "; to download it: hf download a/b--c vae/config.json --revision 1"},
        {"/c/models--org--model.1/snapshots/abc", NULL, ""},
        {"/c/models--org--model.1/blobs/abc", NULL, ""},
        {"/c/models--org/snapshots/abc/x", NULL, ""},
        {"/c/my-models--org--m/snapshots/abc/x", NULL, ""},
        {"/c/x.safetensors", NULL, ""},
    };
    char out[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(wd_hub_advice(out, sizeof out, cases[i].path, cases[i].file),
                            cases[i].advice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_by_each_variable), cmocka_unit_test(folders_come_first),
        cmocka_unit_test(says_how_to_get_it),     cmocka_unit_test(references_lead_nowhere_else),
        cmocka_unit_test(advises_a_download),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
