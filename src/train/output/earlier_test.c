/* An earlier run is moved as a whole, or from a step on; a move that is killed anywhere is ended by
 * the next run; and which folders a run may write into at all. */
#include "train/output/earlier.h"

#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"
#include "train/output/output.h"

extern char **environ;

/* ---- a kill ---- */

enum { KILLED = 9 };

static int changes_left; /* of names, until this process ends itself before the next; 0: never */

int __real_rename(const char *, const char *);
int __wrap_rename(const char *, const char *);

int __wrap_rename(const char *from, const char *to)
{
    if (changes_left && !--changes_left) _exit(KILLED);
    return __real_rename(from, to);
}

/* ---- a run's folder ---- */

static const char *path_of(const char *folder, const char *name)
{
    static char path[16][256];
    static int next;
    char *out = path[next++ % 16];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static const char *new_folder(void)
{
    static char path[128];
    static int n;
    snprintf(path, sizeof path, "%s/%d", wd_test_folder(), n++);
    return path;
}

static void put(const char *folder, const char *name, const char *text)
{
    wd_err err;
    char above[WD_PATH_MAX];
    wd_test_ok(wd_path_beside(above, path_of(folder, name), "", &err), &err);
    wd_test_ok(wd_folder_make(above, &err), &err);
    wd_test_ok(wd_file_write(path_of(folder, name), text, strlen(text), &err), &err);
}

static void assert_text(const char *folder, const char *name, const char *expected)
{
    wd_err err;
    char *text;
    size_t bytes;
    wd_test_ok(wd_file_read(&text, &bytes, path_of(folder, name), 1000, &err), &err);
    assert_string_equal(text, expected);
    wd_free(text);
}

static bool has(const char *folder, const char *name)
{
    return wd_path_exists(path_of(folder, name));
}

static const char run_json[] = "{\"command\": \"train\", \"options\": {}}\n";

/* An evaluation is of the student that it measured, and goes with it. */
static const char *const student[] = {"model_index.json",
                                      "README.md",
                                      "transformer/config.json",
                                      "vae/config.json",
                                      "text_encoder/config.json",
                                      "tokenizer/spiece.model",
                                      "scheduler/scheduler_config.json",
                                      "comfyui/student.json",
                                      "gguf/student.json",
                                      "eval/eval.json",
                                      "side-by-side.png",
                                      "eval.json"};
static const char *const records[] = {"metrics.jsonl", "events.out.tfevents.1.host.2.0",
                                      "run.json"};

enum { STUDENT = sizeof student / sizeof *student, RECORDS = sizeof records / sizeof *records };

/* Names of what belongs to a step. */
static const char *checkpoint_of(int step)
{
    static char name[2][64];
    static int next;
    char *out = name[next++ % 2];
    snprintf(out, sizeof name[0], "checkpoints/step-%08d/state.json", step);
    return out;
}

static const char *sheet_of(int step)
{
    static char name[64];
    snprintf(name, sizeof name, "samples/step-%08d.png", step);
    return name;
}

/* Steps 20 to 80; what is not the run's: cache, notes. */
static void put_run(const char *folder)
{
    for (int i = 0; i < STUDENT; i++) put(folder, student[i], student[i]);
    for (int i = 0; i < RECORDS; i++) put(folder, records[i], i == 2 ? run_json : records[i]);
    for (int step = 20; step <= 80; step += 20) {
        put(folder, checkpoint_of(step), "state");
        put(folder, sheet_of(step), "sheet");
    }
    put(folder, "cache/text", "text");
    put(folder, "notes.txt", "notes");
}

/* Its steps after `from` up to 80 are in `folder`/`name`, and up to `from` in `folder`. */
static void assert_divided(const char *folder, const char *name, int from)
{
    char there[256];
    snprintf(there, sizeof there, "%s/%s", folder, name);
    for (int step = 20; step <= 80; step += 20) {
        assert_int_equal(has(folder, checkpoint_of(step)), step <= from);
        assert_int_equal(has(there, checkpoint_of(step)), step > from);
        assert_int_equal(has(folder, sheet_of(step)), step <= from);
        assert_int_equal(has(there, sheet_of(step)), step > from);
    }
    for (int i = 0; i < STUDENT; i++) {
        assert_false(has(folder, student[i]));
        assert_text(there, student[i], student[i]);
    }
    for (int i = 0; i < RECORDS; i++) {
        assert_int_equal(has(folder, records[i]), from > 0);
        assert_text(there, records[i], i == 2 ? run_json : records[i]);
    }
    assert_text(folder, "cache/text", "text");
    assert_text(folder, "notes.txt", "notes");
    assert_false(has(there, "cache"));
    assert_false(has(there, "notes.txt"));
}

/* As a run begins; the victim may end itself at a change. */
static wd_status begin(const char *folder, int64_t first_step, int changes, wd_err *err)
{
    wd_output output;
    const wd_pipeline teacher = {.path = WD_SOURCE_DIR "/models/wan-tiny"};
    changes_left = changes;
    WD_TRY(wd_output_open(&output, folder, &teacher, err));
    wd_status status = wd_output_lock(&output, first_step, err);
    if (status == WD_OK) status = wd_output_begin(&output, first_step, err);
    wd_output_close(&output);
    return status;
}

static void all_or_later_is_moved(void **state)
{
    (void)state;
    wd_err err;
    for (int from = 0; from < 80; from += 20) {
        const char *folder = new_folder();
        put_run(folder);
        wd_test_ok(begin(folder, from ? from + 1 : 0, 0, &err), &err);
        assert_divided(folder, "earlier-1", from);
        assert_false(has(folder, "earlier-2"));
    }
}

/* The newest checkpoint has nothing behind it, and what is empty is no run. */
static void nothing_is_moved_for_nothing(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    put_run(folder);
    wd_test_ok(begin(folder, 81, 0, &err), &err);
    assert_false(has(folder, "earlier-1"));
    assert_true(has(folder, "transformer/config.json"));

    folder = new_folder();
    put(folder, "run.json", run_json);
    put(folder, "metrics.jsonl", "");
    put(folder, "events.out.tfevents.1.host.2.0", "head");
    wd_test_ok(wd_folder_make(path_of(folder, "checkpoints"), &err), &err);
    wd_test_ok(begin(folder, 0, 0, &err), &err);
    assert_false(has(folder, "earlier-1"));
    assert_true(has(folder, "run.json"));
}

/* One that was ended before its first checkpoint has metrics, which nobody can make again. */
static void a_run_without_checkpoints_is_moved(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    put(folder, "run.json", run_json);
    put(folder, "metrics.jsonl", "{\"step\": 1}\n");
    wd_test_ok(begin(folder, 0, 0, &err), &err);
    assert_text(folder, "earlier-1/metrics.jsonl", "{\"step\": 1}\n");
    assert_false(has(folder, "metrics.jsonl"));
}

/* What has the name of an evaluation and is none stays, and keeps no run from beginning. */
static void what_is_no_evaluation_stays(void **state)
{
    (void)state;
    wd_err err;
    static const char *const others[] = {"eval/main.c", "side-by-side.png"};
    for (int run = 0; run < 2; run++) {
        const char *folder = new_folder();
        if (run) put(folder, "run.json", run_json);
        if (run) put(folder, "metrics.jsonl", "{}\n");
        for (int i = 0; i < 2; i++) put(folder, others[i], others[i]);
        wd_test_ok(begin(folder, 0, 0, &err), &err);
        for (int i = 0; i < 2; i++) assert_text(folder, others[i], others[i]);
        assert_int_equal(has(folder, "earlier-1"), run);
    }
}

static void moves_are_numbered(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    for (int i = 0; i < 2; i++) {
        put_run(folder);
        wd_test_ok(begin(folder, 0, 0, &err), &err);
    }
    assert_divided(folder, "earlier-1", 0);
    assert_divided(folder, "earlier-2", 0);
}

/* Checkpoints on another disk, by a link: the earlier run has them from where it is now. */
static void a_link_leads_to_the_same_place(void **state)
{
    (void)state;
    wd_err err;
    char other[128], link[256];
    const char *folder = new_folder();
    put_run(folder);
    snprintf(link, sizeof link, "%s", path_of(folder, "checkpoints"));
    wd_test_ok(wd_folder_make(path_of(folder, "disk"), &err), &err);
    assert_int_equal(rename(link, path_of(folder, "disk/all")), 0);
    assert_int_equal(symlink("disk/all", link), 0);
    wd_test_ok(begin(folder, 0, 0, &err), &err);
    assert_true(has(folder, "earlier-1/checkpoints/step-00000080/state.json"));
    assert_false(has(folder, "checkpoints"));
    assert_divided(folder, "earlier-1", 0);

    folder = new_folder(); /* from file system to file system nothing is moved by itself */
    put_run(folder);
    snprintf(link, sizeof link, "%s", path_of(folder, "checkpoints"));
    snprintf(other, sizeof other, "/dev/shm/wandistiller-test-%ld", (long)getpid());
    wd_test_ok(wd_folder_remove(link, &err), &err);
    for (int step = 20; step <= 80; step += 20)
        put(other, checkpoint_of(step) + strlen("checkpoints/"), "state");
    assert_int_equal(symlink(other, link), 0);
    wd_test_refused(begin(folder, 41, 0, &err), &err, WD_UNSUPPORTED,
                    "checkpoints: lies on another file system than");
    assert_false(has(folder, "earlier-1"));
    wd_test_ok(begin(folder, 81, 0, &err), &err); /* there is nothing later */
    wd_test_ok(begin(folder, 0, 0, &err), &err);
    assert_divided(folder, "earlier-1", 0);
    wd_test_ok(wd_folder_remove(other, &err), &err);
}

/* Whether the victim came to its end. */
static bool run_victim(const char *folder, int first_step, int changes)
{
    char texts[2][16];
    int status;
    pid_t pid;
    snprintf(texts[0], sizeof texts[0], "%d", first_step);
    snprintf(texts[1], sizeof texts[1], "%d", changes);
    char *const argv[] = {"victim", (char *)folder, texts[0], texts[1], NULL};
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status)) assert_int_equal(WEXITSTATUS(status), KILLED);
    return WEXITSTATUS(status) == 0;
}

/* Killed before every change in its turn: the next run ends the move as it was begun, before it
 * looks for a checkpoint. */
static void a_killed_move_is_ended(void **state)
{
    (void)state;
    wd_err err;
    for (int from = 0; from <= 40; from += 40) {
        int kills = 0;
        for (bool ended = false; !ended; kills++) {
            const char *folder = new_folder();
            put_run(folder);
            ended = run_victim(folder, from ? from + 1 : 0, kills + 1);
            const wd_pipeline teacher = {.path = WD_SOURCE_DIR "/models/wan-tiny"};
            wd_output output;
            wd_test_ok(wd_output_open(&output, folder, &teacher, &err), &err);
            wd_output_close(&output);
            assert_divided(folder, "earlier-1", from);
            assert_false(has(folder, "earlier-2"));
        }
        assert_true(kills > 10);
    }
}

/* What is only named like a move that was killed is left alone. */
static void other_names_are_not_taken_up(void **state)
{
    (void)state;
    static const char *const others[] = {".tmp-earlier-from-x", ".tmp-earlier-from-",
                                         ".tmp-earlier-from--1", ".tmp-earlier-from-7b",
                                         ".tmp-earlier-from-99999999999999999999"};
    char path[128], elsewhere[128];
    wd_err err;
    snprintf(path, sizeof path, "%s", new_folder());
    snprintf(elsewhere, sizeof elsewhere, "%s", new_folder());
    wd_test_ok(wd_folder_make(elsewhere, &err), &err);
    put(path, "run.json", run_json);
    put(path, "model_index.json", "{}");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        wd_test_ok(wd_folder_make(path_of(path, others[i]), &err), &err);
    assert_int_equal(symlink(elsewhere, path_of(path, ".tmp-earlier-from-0")), 0);
    wd_test_ok(wd__earlier_finish(path, &err), &err);
    assert_true(has(path, "run.json") && has(path, "model_index.json"));
    assert_false(has(path, "earlier-1"));
}

/* ---- which folders ---- */

static void refused(const char *folder, wd_status status, const char *text)
{
    wd_err err;
    wd_test_refused(begin(folder, 0, 0, &err), &err, status, text);
    assert_false(has(folder, ".lock"));
}

static void folders_of_others_are_refused(void **state)
{
    (void)state;
    wd_err err;
    static const char *const theirs[] = {"scheduler/main.c",  "README.md", "samples/drum.wav",
                                         "checkpoints/a.bin", "run.json",  "vae/config.json"};
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        const char *folder = new_folder();
        put(folder, theirs[i], "{\"command\": \"serve\"}");
        char part[64];
        snprintf(part, sizeof part, "/%.*s is not of a run", (int)strcspn(theirs[i], "/"),
                 theirs[i]);
        refused(folder, WD_INVALID_ARGUMENT, part);
        assert_text(folder, theirs[i], "{\"command\": \"serve\"}");
    }
    const char *folder = new_folder(); /* names that no run uses, and nothing to be replaced */
    put(folder, "notes.txt", "notes");
    wd_test_ok(wd_folder_make(path_of(folder, "checkpoints"), &err), &err);
    wd_test_ok(begin(folder, 0, 0, &err), &err);
}

static void the_teachers_folder_is_refused(void **state)
{
    (void)state;
    wd_err err;
    refused(WD_SOURCE_DIR "/models/wan-tiny", WD_INVALID_ARGUMENT, "lies in the teacher's folder");
    refused(WD_SOURCE_DIR "/models/wan-tiny/transformer", WD_INVALID_ARGUMENT,
            "lies in the teacher's folder");
    refused(WD_SOURCE_DIR "/models/wan-tiny/new/student", WD_INVALID_ARGUMENT,
            "lies in the teacher's folder");
    assert_false(wd_path_exists(WD_SOURCE_DIR "/models/wan-tiny/new"));
    assert_int_equal(symlink(WD_SOURCE_DIR "/models/wan-tiny", path_of(wd_test_folder(), "link")),
                     0);
    refused(path_of(wd_test_folder(), "link/student"), WD_INVALID_ARGUMENT,
            "lies in the teacher's folder");
    put(wd_test_folder(), "file", "");
    refused(path_of(wd_test_folder(), "file"), WD_IO, "is a file, expected a folder");
    wd_test_ok(begin(new_folder(), 0, 0, &err), &err);
}

/* ---- one run at a time ---- */

static void a_second_run_is_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_output first = {0}, second = {0};
    char process[32];
    const char *folder = new_folder();
    const wd_pipeline teacher = {.path = WD_SOURCE_DIR "/models/wan-tiny"};
    snprintf(process, sizeof process, "(process %ld on ", (long)getpid());
    wd_test_ok(wd_output_open(&first, folder, &teacher, &err), &err);
    wd_test_ok(wd_output_open(&second, folder, &teacher, &err), &err); /* nobody has it yet */
    wd_test_ok(wd_output_lock(&first, 0, &err), &err);
    wd_test_refused(wd_output_lock(&second, 0, &err), &err, WD_INVALID_ARGUMENT, process);
    wd_output_close(&second);
    wd_test_refused(wd_output_open(&second, folder, &teacher, &err), &err, WD_INVALID_ARGUMENT,
                    "another run writes into this folder");
    wd_output_close(&first);
    wd_test_ok(wd_output_open(&second, folder, &teacher, &err), &err);
    wd_output_close(&second);
}

/* What the lock is a link to is not the run's: it would be emptied, and who has it named in it. */
static void a_lock_that_is_a_link_is_refused(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = new_folder();
    put(wd_test_folder(), "precious", "text");
    wd_test_ok(wd_folder_make(folder, &err), &err);
    assert_int_equal(symlink("../precious", path_of(folder, ".lock")), 0);
    wd_test_refused(begin(folder, 0, 0, &err), &err, WD_IO, ".lock: cannot be opened");
    assert_text(wd_test_folder(), "precious", "text");
}

int main(int argc, char **argv)
{
    wd_err err = {0};
    if (argc == 4) return begin(argv[1], atoi(argv[2]), atoi(argv[3]), &err) != WD_OK;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_or_later_is_moved),
        cmocka_unit_test(nothing_is_moved_for_nothing),
        cmocka_unit_test(a_run_without_checkpoints_is_moved),
        cmocka_unit_test(what_is_no_evaluation_stays),
        cmocka_unit_test(moves_are_numbered),
        cmocka_unit_test(a_link_leads_to_the_same_place),
        cmocka_unit_test(a_killed_move_is_ended),
        cmocka_unit_test(other_names_are_not_taken_up),
        cmocka_unit_test(folders_of_others_are_refused),
        cmocka_unit_test(the_teachers_folder_is_refused),
        cmocka_unit_test(a_second_run_is_refused),
        cmocka_unit_test(a_lock_that_is_a_link_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
