/* Files of merged and quantised weights in a cache folder: one that is damaged, of another teacher
 * or another program, missing, or left half-written by a kill. */
#include "quantised.h"
#include "teacher_copy.h"
#include "tiny_teacher.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dev/codec/values.h"

static const char query[] = "blocks.0.attn1.to_q.weight";

static char cache[WD_PATH_MAX], made[WD_PATH_MAX], good[WD_PATH_MAX];

/* While the file is written, another process makes it. */
static bool is_made_meanwhile;
static struct stat made_by_another; /* that file */

wd_status __real_wd_safetensors_put(wd_safetensors_writer *writer, const void *data, size_t bytes,
                                    wd_err *err);
wd_status __wrap_wd_safetensors_put(wd_safetensors_writer *writer, const void *data, size_t bytes,
                                    wd_err *err);

wd_status __wrap_wd_safetensors_put(wd_safetensors_writer *writer, const void *data, size_t bytes,
                                    wd_err *err)
{
    if (is_made_meanwhile) {
        wd_test_ok(wd_file_copy(made, good, err), err);
        assert_int_equal(stat(made, &made_by_another), 0);
    }
    is_made_meanwhile = false;
    return __real_wd_safetensors_put(writer, data, bytes, err);
}

static wd_pipeline quantised(void)
{
    wd_pipeline p = teacher;
    p.has[WD_COMPONENT_TRANSFORMER_2] = false;
    p.overlay = (wd_overlay){.folder = cache, .dtype = WD_BF16, .quantised = WD_I8};
    return p;
}

static wd_status open_set(wd_safetensors **out, const wd_pipeline *p, wd_err *err)
{
    return wd_pipeline_open_weights(out, p, WD_COMPONENT_TRANSFORMER, err);
}

/* Makes the file once, and keeps a copy of it. */
static int make_file(void **state)
{
    wd_err err;
    glob_t found;
    char pattern[WD_PATH_MAX];
    open_teacher(state);
    wd_test_ok(wd_path_join(cache, wd_test_folder(), "cache", &err), &err);
    wd_test_ok(wd_path_join(good, wd_test_folder(), "good.safetensors", &err), &err);
    wd_test_ok(wd_path_join(pattern, cache, "quantised-*.safetensors", &err), &err);
    const wd_pipeline p = quantised();
    wd_test_ok(wd_pipeline_make_overlay(&p, &err), &err);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(made, sizeof made, "%s", found.gl_pathv[0]);
    globfree(&found);
    wd_test_ok(wd_file_copy(good, made, &err), &err);
    return 0;
}

/* What is said of the file: its name, and that it is to be removed. */
static void assert_refused(const char *found)
{
    wd_err err;
    wd_safetensors *set;
    const wd_pipeline p = quantised();
    wd_test_ok(wd_pipeline_make_overlay(&p, &err), &err); /* it does not replace what is there */
    wd_test_refused(open_set(&set, &p, &err), &err, WD_BAD_FORMAT, found);
    assert_non_null(strstr(err.message, "remove the file"));
    assert_non_null(strstr(err.message, made));
}

static void a_damaged_file(void **state)
{
    (void)state;
    static const struct {
        off_t bytes;
        const char *found;
    } cases[] = {{0, "too short"}, {100, "overruns the file"}, {100000, "truncated?"}};
    wd_err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_test_ok(wd_file_copy(made, good, &err), &err);
        assert_int_equal(truncate(made, cases[i].bytes), 0);
        assert_refused(cases[i].found);
    }
}

typedef enum change { NOTHING, KEY, DTYPE, SHAPE, NAME, NO_SCALE, CHANGES } change;

/* Writes the file anew, with one change in it. */
static void rewrite(change what)
{
    wd_err err;
    wd_safetensors *set;
    wd_test_file *file = calloc(1, sizeof *file);
    wd_test_ok(wd_safetensors_open(&set, good, &err), &err);
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        wd_tensor t = e->tensor;
        const bool changes = !strcmp(e->name, query);
        if (changes && what == DTYPE) t.dtype = WD_F8_E4M3;
        if (changes && what == SHAPE) t.dim[0] /= 2, t.dim[1] *= 2;
        if (what == NO_SCALE && !strncmp(e->name, query, sizeof query - 1) && !changes) continue;
        wd_test_add(file, e->name, changes && what == NAME ? "x" : "", t.dtype, t.ndim, t.dim,
                    wd_test_copy(t.data, wd_tensor_bytes(&t)));
    }
    const char *key = wd_safetensors_metadata(set, "wandistiller.merged");
    const char *const metadata[] = {"wandistiller.merged", what == KEY ? "another" : key, NULL};
    wd_test_write_file(file, made, metadata);
    wd_safetensors_close(set);
}

static void a_file_of_something_else(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    const wd_pipeline p = quantised();
    rewrite(NOTHING);
    wd_test_ok(open_set(&set, &p, &err), &err);
    wd_safetensors_close(set);
    for (change what = KEY; what < CHANGES; what++) {
        rewrite(what);
        assert_refused("is not the file that its name says");
    }
}

static size_t files_in_cache(void)
{
    char pattern[WD_PATH_MAX];
    wd_err err;
    glob_t found;
    wd_test_ok(wd_path_join(pattern, cache, "quantised-*.safetensors", &err), &err);
    const int failed = glob(pattern, 0, NULL, &found);
    const size_t files = failed ? 0 : found.gl_pathc;
    if (!failed) globfree(&found);
    return files;
}

enum { PLACE = 5 };

/* A value of the teacher's, as it is used. */
static float value_of(const wd_pipeline *p)
{
    wd_err err;
    wd_safetensors *set;
    float value;
    wd_test_ok(open_set(&set, p, &err), &err);
    wd_tensor_values(&value, &wd_safetensors_find(set, query)->tensor, PLACE, 1);
    wd_safetensors_close(set);
    return value;
}

/* Changes that value in the teacher's own file. */
static void change_file(const wd_pipeline *pipeline, float value)
{
    wd_err err;
    wd_safetensors *set;
    wd_pipeline p = *pipeline;
    const uint16_t bits = wd_f32_to_bf16(value);
    p.overlay.quantised = WD_F32;
    wd_test_ok(open_set(&set, &p, &err), &err);
    const wd_safetensors_entry *e = wd_safetensors_find(set, query);
    FILE *file = fopen(e->file, "r+b");
    assert_int_equal(e->tensor.dtype, WD_BF16);
    assert_int_equal(fseek(file, (long)e->file_offset + 2 * PLACE, SEEK_SET), 0);
    assert_int_equal(fwrite(&bits, sizeof bits, 1, file), 1);
    fclose(file);
    wd_safetensors_close(set);
}

/* The teacher's file changes under its name, by one value: it gets a file of its own, and the one
 * that was there is not used. */
static void a_teacher_that_has_changed(void **state)
{
    (void)state;
    wd_err err;
    char copy[WD_PATH_MAX];
    wd_pipeline p;
    wd_test_ok(wd_file_copy(made, good, &err), &err);
    const size_t files = files_in_cache();
    wd_test_copy_teacher(copy, "changed");
    wd_test_ok(wd_pipeline_open(&p, copy, &err), &err);
    p.has[WD_COMPONENT_TRANSFORMER_2] = false;
    p.overlay = quantised().overlay;
    wd_test_ok(wd_pipeline_make_overlay(&p, &err), &err);
    assert_int_equal(files_in_cache(), files); /* a copy of the teacher has the same */
    const float before = value_of(&p);
    change_file(&p, -before - 0.01f);
    wd_test_ok(wd_pipeline_make_overlay(&p, &err), &err);
    assert_int_equal(files_in_cache(), files + 1);
    assert_true(fabsf(value_of(&p) + before + 0.01f) < 0.005f);
}

/* Before the file is made, plans need no data; afterwards no weights may be without them, as in a
 * process that sees another folder than the one that has made it. */
static void a_missing_file(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    wd_pipeline p = quantised();
    assert_int_equal(unlink(made), 0);
    wd_test_ok(open_set(&set, &p, &err), &err);
    assert_null(wd_safetensors_find(set, query)->tensor.data);
    wd_safetensors_close(set);
    p.overlay.is_made = true;
    wd_test_refused(open_set(&set, &p, &err), &err, WD_NOT_FOUND, "--cache_dir");
    assert_non_null(strstr(err.message, made));
    assert_int_equal(symlink("/nonexistent/file", made), 0);
    wd_test_refused(open_set(&set, &p, &err), &err, WD_NOT_FOUND, "--cache_dir");
    wd_test_ok(wd_pipeline_make_overlay(&p, &err), &err); /* in the place of the link */
    wd_test_ok(open_set(&set, &p, &err), &err);
    wd_safetensors_close(set);
}

/* Another process may have mapped its file already, which stays. */
static void a_file_that_another_process_makes(void **state)
{
    (void)state;
    wd_err err;
    char pattern[WD_PATH_MAX];
    glob_t found;
    struct stat now;
    const wd_pipeline p = quantised();
    assert_int_equal(unlink(made), 0);
    is_made_meanwhile = true;
    wd_test_ok(wd_pipeline_make_overlay(&p, &err), &err);
    assert_false(is_made_meanwhile);
    assert_int_equal(stat(made, &now), 0);
    assert_int_equal(now.st_ino, made_by_another.st_ino);
    snprintf(pattern, sizeof pattern, "%s/*.tmp", cache);
    assert_int_equal(glob(pattern, 0, NULL, &found), GLOB_NOMATCH);
}

/* A file beside the others, which nobody has written to for `hours`. */
static void leave(char path[WD_PATH_MAX], const char *name, int hours)
{
    wd_err err;
    const struct timespec then = {.tv_sec = time(NULL) - hours * 3600};
    wd_test_ok(wd_path_join(path, cache, name, &err), &err);
    wd_test_ok(wd_file_write(path, "x", 1, &err), &err);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){then, then}, 0), 0);
}

/* What a killed run has left goes after a day, whether there is something to write or not. */
static void what_a_kill_has_left(void **state)
{
    (void)state;
    wd_err err;
    char merged[WD_PATH_MAX], old[WD_PATH_MAX], new[WD_PATH_MAX], other[WD_PATH_MAX];
    const wd_pipeline p = quantised();
    leave(merged, "merged-0123.safetensors.123-0.tmp", 25);
    leave(old, "quantised-0123.safetensors.123-1.tmp", 25);
    leave(new, "quantised-0123.safetensors.124-0.tmp", 23);
    leave(other, "mine-0123.safetensors.123-2.tmp", 25);
    wd_test_ok(wd_pipeline_make_overlay(&p, &err), &err);
    assert_false(wd_path_exists(merged) || wd_path_exists(old));
    assert_true(wd_path_exists(new) && wd_path_exists(other) && wd_path_exists(made));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_file),
        cmocka_unit_test(a_file_of_something_else),
        cmocka_unit_test(a_teacher_that_has_changed),
        cmocka_unit_test(a_missing_file),
        cmocka_unit_test(a_file_that_another_process_makes),
        cmocka_unit_test(what_a_kill_has_left),
    };
    return cmocka_run_group_tests(tests, make_file, NULL);
}
