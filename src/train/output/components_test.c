/* What of a teacher's folder goes into a student's: known files of the model itself, and nothing
 * that a link brings in from elsewhere. */
#include "train/output/components.h"

#include <sys/stat.h>
#include <unistd.h>

#include "teacher_copy.h"

static wd_pipeline open_teacher(const char *path)
{
    wd_err err;
    wd_pipeline teacher;
    wd_test_ok(wd_pipeline_open(&teacher, path, &err), &err);
    return teacher;
}

/* A new folder for a student. */
static const char *new_student(void)
{
    static char path[128];
    static int n;
    wd_err err;
    snprintf(path, sizeof path, "%s/student-%d", wd_test_folder(), n++);
    wd_test_ok(wd_folder_make(path, &err), &err);
    return path;
}

static void write_text(const char *path, const char *text)
{
    wd_err err;
    wd_test_ok(wd_file_write(path, text, strlen(text), &err), &err);
}

static struct stat stat_of(const char *folder, const char *name)
{
    struct stat info;
    assert_int_equal(lstat(wd_test_in(folder, name), &info), 0);
    return info;
}

static const char vae_weights[] = "vae/diffusion_pytorch_model.safetensors";

/* A file that nobody reads by name stays behind, whatever it is. */
static void leaves_unknown_files(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    wd_test_copy_teacher(path, "unknown");
    write_text(wd_test_in(wd_test_folder(), "secret"), "a private key");
    const char *const folders[] = {"vae", "text_encoder", "tokenizer"};
    for (int i = 0; i < 3; i++) {
        const char *folder = wd_test_in(path, folders[i]);
        write_text(wd_test_in(folder, "notes.txt"), "notes");
        assert_int_equal(
            symlink(wd_test_in(wd_test_folder(), "secret"), wd_test_in(folder, "id_ed25519")), 0);
    }
    const wd_pipeline teacher = open_teacher(path);
    const char *student = new_student();
    wd_test_ok(wd_components_check(&teacher, &err), &err);
    wd_test_ok(wd_components_take(student, &teacher, WD_EXPORT_LINK, &err), &err);
    for (int i = 0; i < 3; i++) {
        const char *folder = wd_test_in(student, folders[i]);
        struct stat info;
        assert_int_not_equal(lstat(wd_test_in(folder, "notes.txt"), &info), 0);
        assert_int_not_equal(lstat(wd_test_in(folder, "id_ed25519"), &info), 0);
    }
    for (int c = WD_COMPONENT_TEXT_ENCODER; c <= WD_COMPONENT_TOKENIZER; c++) {
        wd_pipeline taken;
        const char *folder = wd_test_in(student, wd_component_name((wd_component)c));
        wd_test_ok(wd_pipeline_open(&taken, folder, &err), &err);
        assert_true(taken.has[c]);
    }
}

/* A known name that is a link to a file elsewhere is refused, before a run and when it is taken. */
static void refuses_links_that_leave_the_model(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer/special_tokens_map.json", "vae/config.json",
                                        "tokenizer/spiece.model", vae_weights};
    wd_err err;
    char path[WD_PATH_MAX], name[32];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "leaving-%d", i);
        wd_test_copy_teacher(path, name);
        const char *inside = wd_test_in(path, names[i]);
        const char *outside = wd_test_in(wd_test_folder(), "outside");
        unlink(outside);
        if (rename(inside, outside)) write_text(outside, "{}"); /* the first is not there */
        assert_int_equal(symlink(outside, inside), 0);
        const wd_pipeline teacher = open_teacher(path);
        wd_test_refused(wd_components_check(&teacher, &err), &err, WD_INVALID_ARGUMENT, outside);
        assert_non_null(strstr(err.message, names[i]));
        wd_test_refused(wd_components_take(new_student(), &teacher, WD_EXPORT_COPY, &err), &err,
                        WD_INVALID_ARGUMENT, "is a symbolic link to");
    }
}

/* A folder that is a link leads elsewhere, too. */
static void refuses_linked_folders(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    wd_test_copy_teacher(path, "linked-folder");
    const char *outside = wd_test_in(wd_test_folder(), "other-vae");
    assert_int_equal(rename(wd_test_in(path, "vae"), outside), 0);
    assert_int_equal(symlink(outside, wd_test_in(path, "vae")), 0);
    const wd_pipeline teacher = open_teacher(path);
    wd_test_refused(wd_components_check(&teacher, &err), &err, WD_INVALID_ARGUMENT, "other-vae");
}

/* The Hub cache has blobs/, and a snapshot of links to them. */
static void takes_blobs_of_the_hub_cache(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    const char *cache = wd_test_in(wd_test_folder(), "models--org--tiny");
    const char *blobs = wd_test_in(cache, "blobs");
    wd_test_ok(wd_folder_make(blobs, &err), &err);
    wd_test_ok(wd_folder_make(wd_test_in(cache, "snapshots"), &err), &err);
    wd_test_copy_teacher(path, "models--org--tiny/snapshots/0123abc");
    const char *const names[] = {"vae/config.json", vae_weights, "tokenizer/spiece.model"};
    for (int i = 0; i < 3; i++) {
        char blob[8] = {(char)('a' + i)};
        const char *file = wd_test_in(path, names[i]);
        assert_int_equal(rename(file, wd_test_in(blobs, blob)), 0);
        assert_int_equal(symlink(wd_test_in("../../../blobs", blob), file), 0);
    }
    const wd_pipeline teacher = open_teacher(path);
    const char *student = new_student();
    wd_test_ok(wd_components_take(student, &teacher, WD_EXPORT_LINK, &err), &err);
    for (int i = 0; i < 3; i++) assert_true(S_ISREG(stat_of(student, names[i]).st_mode));
    assert_int_equal(stat_of(student, vae_weights).st_ino, stat_of(blobs, "b").st_ino);

    /* Another model's blobs are not this model's. */
    const char *other = wd_test_in(wd_test_folder(), "models--org--other");
    assert_int_equal(rename(cache, other), 0);
    wd_test_ok(wd_folder_make(wd_test_in(cache, "snapshots"), &err), &err);
    wd_test_ok(wd_folder_make(blobs, &err), &err);
    assert_int_equal(rename(wd_test_in(other, "snapshots/0123abc"), path), 0);
    assert_int_equal(rename(wd_test_in(other, "blobs/b"), wd_test_in(blobs, "b")), 0);
    assert_int_equal(rename(wd_test_in(other, "blobs/c"), wd_test_in(blobs, "c")), 0);
    const char *config = wd_test_in(path, "vae/config.json");
    unlink(config);
    assert_int_equal(symlink(wd_test_in(other, "blobs/a"), config), 0);
    wd_test_refused(wd_components_check(&teacher, &err), &err, WD_INVALID_ARGUMENT,
                    "models--org--other/blobs/a");
}

/* Folders that are only called so are no Hub cache: blobs/ beside them may be anybody's. */
static void other_blobs_are_elsewhere(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    const char *plain = wd_test_in(wd_test_folder(), "plain");
    wd_test_ok(wd_folder_make(wd_test_in(plain, "blobs"), &err), &err);
    wd_test_ok(wd_folder_make(wd_test_in(plain, "snapshots"), &err), &err);
    wd_test_copy_teacher(path, "plain/snapshots/0123abc");
    const char *config = wd_test_in(path, "vae/config.json");
    assert_int_equal(rename(config, wd_test_in(plain, "blobs/a")), 0);
    assert_int_equal(symlink("../../../blobs/a", config), 0);
    const wd_pipeline teacher = open_teacher(path);
    wd_test_refused(wd_components_check(&teacher, &err), &err, WD_INVALID_ARGUMENT,
                    "plain/blobs/a");
}

/* Weights are one file under two names; what people edit is a file of its own. */
static void small_files_are_copies(void **state)
{
    (void)state;
    static const char *const copied[] = {"vae/config.json", "text_encoder/config.json",
                                         "tokenizer/tokenizer_config.json",
                                         "tokenizer/spiece.model", "tokenizer/tokenizer.json"};
    static const char *const linked[] = {vae_weights, "text_encoder/model.safetensors"};
    wd_err err;
    char path[WD_PATH_MAX], before[33], after[33];
    wd_test_copy_teacher(path, "shared");
    const wd_pipeline teacher = open_teacher(path);
    const char *student = new_student();
    wd_test_ok(wd_components_take(student, &teacher, WD_EXPORT_LINK, &err), &err);
    for (size_t i = 0; i < sizeof linked / sizeof *linked; i++)
        assert_int_equal(stat_of(student, linked[i]).st_ino, stat_of(path, linked[i]).st_ino);
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        wd_test_ok(wd_file_hash(before, wd_test_in(path, copied[i]), &err), &err);
        FILE *file = fopen(wd_test_in(student, copied[i]), "r+"); /* as an editor in place */
        assert_non_null(file);
        fputs("edited", file);
        fclose(file);
        wd_test_ok(wd_file_hash(after, wd_test_in(path, copied[i]), &err), &err);
        assert_string_equal(before, after);
    }
}

static void truncate_to(const char *path, off_t bytes)
{
    assert_int_equal(truncate(path, bytes), 0);
}

/* What a partial download lacks is noticed by the check. */
static void names_what_is_missing(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    wd_test_copy_teacher(path, "missing");
    const wd_pipeline teacher = open_teacher(path);
    const char *vae = wd_test_in(path, vae_weights);
    truncate_to(vae, 1000000);
    wd_test_refused(wd_components_check(&teacher, &err), &err, WD_BAD_FORMAT, "truncated");
    assert_non_null(strstr(err.message, vae_weights));
    unlink(vae);
    wd_test_refused(wd_components_check(&teacher, &err), &err, WD_NOT_FOUND,
                    "diffusion_pytorch_model.safetensors");
    wd_test_copy_teacher(path, "missing-text");
    const wd_pipeline other = open_teacher(path);
    unlink(wd_test_in(path, "text_encoder/model.safetensors"));
    wd_test_refused(wd_components_check(&other, &err), &err, WD_NOT_FOUND, "model.safetensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_unknown_files),
        cmocka_unit_test(refuses_links_that_leave_the_model),
        cmocka_unit_test(refuses_linked_folders),
        cmocka_unit_test(takes_blobs_of_the_hub_cache),
        cmocka_unit_test(other_blobs_are_elsewhere),
        cmocka_unit_test(small_files_are_copies),
        cmocka_unit_test(names_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
