/* Tests of how NVIDIA's libraries are found: in the folders of pip and CUDA_HOME, what is said of a
 * library that is missing or damaged, and the table that tests put in their place. The libraries
 * here are made of the lists themselves, with functions that do nothing (standin/library.c), under
 * names that no machine has. */
#include "testing.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dev/cuda/api.h"
#include "dev/cuda/lookup.h"
#include "dev/device_list.h"

static const char *const none[] = {"libwandistiller-none.so.9", NULL};
static const char *const either[] = {"libwandistiller-none.so.9", "libwandistiller-some.so.8",
                                     NULL};

/* Makes the folder `below` of `root`, with all that lead to it. */
static void make_folder(char out[512], const char *root, const char *below)
{
    snprintf(out, 512, "%s/%s", root, below);
    for (char *at = out + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(out, 0700);
    }
    mkdir(out, 0700);
}

static void put(const char *folder, const char *name, const char *library)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(symlink(library, path), 0);
}

static void found_where_pip_puts_them(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *below;
    } place[] = {{"VIRTUAL_ENV", "lib/python3.11/site-packages/nvidia/cublas/lib"},
                 {"CONDA_PREFIX", "lib/python3.12/site-packages/nvidia/cu13/lib"},
                 {"CONDA_PREFIX", "lib"},
                 {"HOME", ".local/lib/python3.9/site-packages/nvidia/cudnn/lib"},
                 {"CUDA_HOME", "lib64"},
                 {"CUDA_PATH", "lib"}};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        char root[256], folder[512], path[1024];
        wd_cuda_found found;
        char *before = getenv(place[i].variable);
        if (before) assert_non_null(before = strdup(before));
        snprintf(root, sizeof root, "%s/root-%zu", wd_test_folder(), i);
        make_folder(folder, root, place[i].below);
        put(folder, either[1], WD_LIBRARY_LT);
        setenv(place[i].variable, root, 1);
        wd__cuda_lookup(&found, either);
        snprintf(path, sizeof path, "%s/%s", folder, either[1]);
        assert_non_null(found.handle);
        assert_string_equal(found.path, path);
        wd__cuda_lookup(&found, none);
        assert_null(found.handle);
        assert_non_null(strstr(found.looked, root));
        if (before)
            setenv(place[i].variable, before, 1);
        else
            unsetenv(place[i].variable);
        free(before);
    }
}

/* Images with conda have its bin folder in PATH, and no other variable. */
static void found_beside_programs_of_path(void **state)
{
    (void)state;
    char root[256], folder[512], path[1024], *before = getenv("PATH");
    wd_cuda_found found;
    if (before) assert_non_null(before = strdup(before));
    unsetenv("VIRTUAL_ENV");
    unsetenv("CONDA_PREFIX");
    snprintf(root, sizeof root, "%s/conda", wd_test_folder());
    make_folder(folder, root, "lib/python3.12/site-packages/nvidia/cublas/lib");
    put(folder, either[1], WD_LIBRARY_LT);
    make_folder(path, root, "bin");
    put(path, "python3", "/bin/sh");
    static const struct {
        const char *form;
        bool is_found;
    } forms[] = {{"%s/bin", true},    {"/nowhere/bin:%s/bin", true},
                 {"%s/bin/", true},   {"bin::%s/bin:/usr/bin", true},
                 {"%s/sbin", false},  {"%s", false},
                 {".%s/bin", false},  {"%s/bin/far", false},
                 {"/bin:bin", false}, {"", false}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const char *at = strstr(forms[i].form, "%s");
        snprintf(path, sizeof path, "%.*s%s%s", (int)(at ? at - forms[i].form : 99), forms[i].form,
                 at ? root : "", at ? at + 2 : "");
        setenv("PATH", path, 1);
        wd__cuda_lookup(&found, either);
        assert_int_equal(found.handle != NULL, forms[i].is_found);
        assert_non_null(strstr(found.looked, "for every PREFIX/bin in PATH, "));
        if (!found.handle) continue;
        snprintf(path, sizeof path, "%s/%s", folder, either[1]);
        assert_string_equal(found.path, path);
    }
    /* anybody could have put the library there */
    snprintf(path, sizeof path, "%s/bin", root);
    setenv("PATH", path, 1);
    assert_int_equal(chmod(root, 01777), 0);
    wd__cuda_lookup(&found, either);
    assert_null(found.handle);
    assert_int_equal(chmod(root, 0755), 0);
    if (before)
        setenv("PATH", before, 1);
    else
        unsetenv("PATH");
    free(before);
}

/* A python3 in PATH that is a link, or whose environment everybody may write to, says itself where
 * its packages are. The only place of the library here: nothing else finds it. */
static void python_says_where_it_is(void **state)
{
    (void)state;
    static const char *const name[] = {"libwandistiller-python.so.1", NULL};
    char root[256], folder[512], bin[1024], script[1200], *before = getenv("PATH");
    wd_cuda_found found;
    if (before) assert_non_null(before = strdup(before));
    unsetenv("VIRTUAL_ENV");
    unsetenv("CONDA_PREFIX");
    snprintf(root, sizeof root, "%s/asked", wd_test_folder());
    make_folder(folder, root, "lib/python3.12/site-packages/nvidia/cu13/lib");
    put(folder, name[0], WD_LIBRARY_LT);
    make_folder(bin, wd_test_folder(), "links");
    snprintf(script, sizeof script, "%s/python3", bin);
    FILE *f = fopen(script, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n[ \"$1\" = -I ] && echo '%s'\n", root);
    fclose(f);
    assert_int_equal(chmod(script, 0700), 0);
    setenv("PATH", bin, 1);
    wd__cuda_lookup(&found, name); /* python3 is asked once in a process: here */
    assert_non_null(found.handle);
    assert_non_null(strstr(found.path, "/asked/lib/python3.12/site-packages/nvidia/cu13/lib/"));
    assert_non_null(strstr(found.looked, "/nvidia/*/lib of the python3 in PATH"));
    if (before)
        setenv("PATH", before, 1);
    else
        unsetenv("PATH");
    free(before);
}

/* A place that has one library of a set does not give it where another place has all. */
static void a_place_that_has_all_comes_first(void **state)
{
    (void)state;
    static const char *const first[] = {"libwandistiller-first.so.1", NULL},
                             *const second[] = {"libwandistiller-second.so.2",
                                                "libwandistiller-second.so.1", NULL};
    const char *const *const both[] = {first, second};
    char some[256], all[256], folder[512];
    wd_cuda_found found;
    snprintf(some, sizeof some, "%s/some", wd_test_folder());
    snprintf(all, sizeof all, "%s/all", wd_test_folder());
    make_folder(folder, some, "lib64");
    put(folder, first[0], WD_LIBRARY_LT);
    make_folder(folder, all, "lib/python3.12/site-packages/nvidia/cublas/lib");
    put(folder, first[0], WD_LIBRARY_LT);
    make_folder(folder, all, "lib/python3.12/site-packages/nvidia/cudnn/lib");
    put(folder, second[1], WD_LIBRARY_CUDNN);
    setenv("CUDA_HOME", some, 1);
    setenv("VIRTUAL_ENV", all, 1);
    wd__cuda_lookup(&found, first);
    assert_non_null(strstr(found.path, "/some/lib64/"));
    wd__cuda_lookup_prefer(both, 2);
    wd__cuda_lookup(&found, first);
    assert_non_null(strstr(found.path, "/all/lib/"));
    wd__cuda_lookup(&found, second);
    assert_non_null(strstr(found.path, "/all/lib/"));
    put(folder, second[0], WD_LIBRARY_CUDNN);
    make_folder(folder, some, "lib64"); /* the preferred place has its second name */
    wd__cuda_lookup(&found, second);
    assert_non_null(strstr(found.path, "/all/lib/"));
    wd__cuda_lookup_prefer((const char *const *const[]){first, none}, 2); /* no place has both */
    wd__cuda_lookup(&found, first);
    assert_non_null(strstr(found.path, "/some/lib64/"));
    unsetenv("CUDA_HOME");
    unsetenv("VIRTUAL_ENV");
}

static void said_where_it_was_looked_for(void **state)
{
    (void)state;
    wd_cuda_found found;
    unsetenv("VIRTUAL_ENV");
    setenv("CUDA_HOME", "/opt/no-such-cuda", 1);
    wd__cuda_lookup(&found, none);
    assert_null(found.handle);
    assert_non_null(strstr(found.looked, "LD_LIBRARY_PATH"));
    assert_non_null(strstr(found.looked, "VIRTUAL_ENV (not set)"));
    assert_non_null(strstr(found.looked, "/opt/no-such-cuda/lib64, /opt/no-such-cuda/lib,"));
    assert_non_null(strstr(found.looked, "/usr/local/cuda/lib64"));
    wd__cuda_lookup_driver(&found, none);
    assert_null(found.handle);
    assert_null(strstr(found.looked, "CUDA_HOME"));
    unsetenv("CUDA_HOME");
}

/* A relative path in the environment is not followed: it would mean another folder for each
 * working folder. */
static void relative_roots_are_passed_by(void **state)
{
    (void)state;
    wd_cuda_found found;
    setenv("CUDA_HOME", "cuda", 1);
    wd__cuda_lookup(&found, none);
    assert_non_null(strstr(found.looked, "CUDA_HOME (not set)"));
    unsetenv("CUDA_HOME");
}

static void damaged_ones_are_named(void **state)
{
    (void)state;
    char root[256], folder[512], path[1024];
    wd_cuda_found found;
    snprintf(root, sizeof root, "%s/damaged", wd_test_folder());
    make_folder(folder, root, "lib64");
    snprintf(path, sizeof path, "%s/%s", folder, none[0]);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("no library", file);
    fclose(file);
    setenv("CUDA_HOME", root, 1);
    wd__cuda_lookup(&found, none);
    assert_null(found.handle);
    assert_non_null(strstr(found.looked, path));
    assert_non_null(strstr(found.looked, "cannot be opened"));
    unsetenv("CUDA_HOME");
}

/* A library that opens another one by its name alone finds it in its own folder, where pip puts
 * both: so NVRTC finds its builtins. */
static void one_library_finds_another_beside_it(void **state)
{
    (void)state;
    static const char name[] = "libwandistiller-builtins.so.1.0"; /* in the library, too */
    char root[256], folder[512], path[2][1024];
    wd_err err;
    snprintf(root, sizeof root, "%s/beside", wd_test_folder());
    make_folder(folder, root, "lib/python3.12/site-packages/nvidia/cu13/lib");
    snprintf(path[0], sizeof path[0], "%s/libwandistiller-compiler.so.13", folder);
    snprintf(path[1], sizeof path[1], "%s/%s", folder, name);
    wd_test_ok(wd_file_copy(path[0], WD_LIBRARY_LT, &err), &err);
    wd_test_ok(wd_file_copy(path[1], WD_LIBRARY_BUILTINS, &err), &err);
    void *compiler = dlopen(path[0], RTLD_NOW);
    assert_non_null(compiler);
    assert_null(dlopen(name, RTLD_NOW));
    assert_int_equal(wd__cuda_lookup_beside(compiler, "libwandistiller-other.so.*"), 0);
    assert_int_equal(wd__cuda_lookup_beside(compiler, "libwandistiller-builtins.so.*"), 1);
    assert_non_null(dlopen(name, RTLD_NOW));
}

/* All functions of a list are found in a library that has them, and the first that is missing is
 * named for one that has others. */
static void tables_are_filled(void **state)
{
    (void)state;
    static const char *const library[] = {WD_LIBRARY_DRIVER, WD_LIBRARY_LT, WD_LIBRARY_CUDNN,
                                          WD_LIBRARY_NCCL};
    wd_cuda_api api = {0};
    wd_err err = {0};
    for (int i = 0; i < WD_CUDA_LIBRARIES; i++) {
        void *handle = dlopen(library[i], RTLD_NOW),
             *other = dlopen(library[(i + 1) % 4], RTLD_NOW);
        assert_non_null(handle);
        assert_non_null(other);
        assert_int_equal(wd__cuda_api_fill(&api, (wd_cuda_library)i, other, "libother.so.1", &err),
                         WD_UNSUPPORTED);
        assert_non_null(strstr(err.message, "libother.so.1 has no function "));
        assert_false(api.has[i]);
        wd_test_ok(wd__cuda_api_fill(&api, (wd_cuda_library)i, handle, library[i], &err), &err);
        assert_true(api.has[i]);
    }
    int value = 7;
    assert_int_equal(api.driver.driver_get_version(&value), 0);
    assert_int_equal(api.cudnn.get_version(), 0);
#define X(result, field, symbol, parameters) assert_non_null((void *)(size_t)api.driver.field);
    WD_CUDA_DRIVER_MAP(X)
#undef X
}

static void a_stand_in_is_used(void **state)
{
    (void)state;
    static const wd_cuda_api mine = {.has = {[WD_CUDA_DRIVER] = true}};
    const wd_cuda_api *api = NULL;
    wd_err err = {0};
    wd__cuda_api_use(&mine);
    wd_test_ok(wd__cuda_api_need(&api, WD_CUDA_DRIVER, &err), &err);
    assert_ptr_equal(api, &mine);
    assert_int_equal(wd__cuda_api_need(&api, WD_CUDA_NCCL, &err), WD_UNSUPPORTED);
    assert_non_null(strstr(err.message, "NCCL"));
    wd__cuda_api_use(NULL);
}

/* Where there is no driver the message says so, and what to do; where there is one it is used. */
static void a_driver_is_found_or_asked_for(void **state)
{
    (void)state;
    const wd_cuda_api *api = NULL;
    wd_err err = {0};
    const wd_status status = wd__cuda_api_need(&api, WD_CUDA_LT, &err);
    if (status == WD_OK) {
        assert_true(api->has[WD_CUDA_DRIVER] && api->has[WD_CUDA_LT]);
        return;
    }
    assert_int_equal(status, WD_UNSUPPORTED);
    assert_non_null(strstr(err.message, "install"));
    assert_null(api);
}

/* `auto` says that it found a driver which it cannot use. The shared library with the driver's
 * functions has the driver's name, and says that it supports CUDA 0.0. */
static void auto_names_an_old_driver(void **state)
{
    (void)state;
    wd_device_list list;
    wd_err err = {0};
    if (wd__cuda_api_found_driver()) wd_test_skip("this machine has an NVIDIA driver");
    assert_non_null(dlopen(WD_LIBRARY_DRIVER, RTLD_NOW));
    wd_test_ok(wd_device_list_parse(&list, "auto", &err), &err);
    assert_int_equal(list.device[0].type, WD_DEVICE_CPU);
    assert_non_null(strstr(list.note, "instead of a GPU: the NVIDIA driver supports CUDA 0.0: "
                                      "expected 12.0 or later"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(python_says_where_it_is), /* before others, in which python3 is asked */
        cmocka_unit_test(a_place_that_has_all_comes_first),
        cmocka_unit_test(found_where_pip_puts_them),
        cmocka_unit_test(found_beside_programs_of_path),
        cmocka_unit_test(said_where_it_was_looked_for),
        cmocka_unit_test(relative_roots_are_passed_by),
        cmocka_unit_test(damaged_ones_are_named),
        cmocka_unit_test(one_library_finds_another_beside_it),
        cmocka_unit_test(a_driver_is_found_or_asked_for), /* before one that is loaded below */
        cmocka_unit_test(tables_are_filled),
        cmocka_unit_test(a_stand_in_is_used),
        cmocka_unit_test(auto_names_an_old_driver),
    };
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
