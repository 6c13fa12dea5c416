/* Ranks with the same options agree. All ranks name one that has other options or other files. */
#include "api/jobs/agreement.h"

#include "testing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS = 4 };

static void say(wd_agreement *a, int batch, const char *prompts)
{
    char text[16];
    *a = (wd_agreement){0};
    snprintf(text, sizeof text, "%d", batch);
    wd__agree_on_text(a, "seed", "7");
    wd__agree_on_text(a, "batch_size", text);
    wd__agree_on_bytes(a, "the prompts", prompts, strlen(prompts));
}

typedef struct rank {
    pthread_t thread;
    wd_comm *comm;
    int batch;
    const char *prompts;
    wd_status status;
    wd_err err;
} rank;

static void *check(void *context)
{
    rank *r = context;
    wd_agreement a;
    say(&a, r->batch, r->prompts);
    r->status = wd__agreement_check(&a, r->comm, &r->err);
    return NULL;
}

/* Checks ranks with these batch sizes and prompts, and that all of them report the same. */
static rank checked(const int batch[RANKS], const char *const prompts[RANKS])
{
    wd_err err;
    wd_comm *comm[RANKS];
    rank r[RANKS];
    wd_test_ok(wd_comm_open_threads(comm, RANKS, &err), &err);
    for (int i = 0; i < RANKS; i++) {
        r[i] = (rank){.comm = comm[i], .batch = batch[i], .prompts = prompts[i]};
        assert_int_equal(pthread_create(&r[i].thread, NULL, check, &r[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(r[i].thread, NULL);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(r[i].status, r[0].status);
        if (r[i].status != WD_OK) assert_string_equal(r[i].err.message, r[0].err.message);
        wd_comm_close(comm[i]);
    }
    return r[0];
}

static const char *const same[RANKS] = {"a cat", "a cat", "a cat", "a cat"};
static const char *const other[RANKS] = {"a cat", "a cat", "a cat", "a dog"};

static void those_alike_go_on(void **state)
{
    (void)state;
    assert_int_equal(checked((const int[]){2, 2, 2, 2}, same).status, WD_OK);
}

static void who_differs_is_named(void **state)
{
    (void)state;
    rank r = checked((const int[]){2, 2, 4, 2}, same);
    wd_test_refused(r.status, &r.err, WD_MISMATCH,
                    "rank 0 and rank 2 differ in batch_size: 2 and 4.");
    r = checked((const int[]){2, 4, 4, 2},
                other); /* the message has the first difference, and their number */
    wd_test_refused(r.status, &r.err, WD_MISMATCH,
                    "rank 0 and rank 1 and 1 more differ in batch_size: 2 and 4.");
    r = checked((const int[]){2, 2, 2, 2}, other);
    wd_test_refused(r.status, &r.err, WD_MISMATCH, "rank 0 and rank 3 differ in the prompts.");
}

/* ---- of a run ---- */

typedef struct keyed {
    pthread_t thread;
    wd_comm *comm;
    const wd_train_setup *setup;
    wd_status status;
    wd_err err;
} keyed;

static void *agree(void *context)
{
    static const wd_train_plan plan; /* the same on both ranks */
    keyed *k = context;
    wd_train_setup *setup = malloc(sizeof *setup);
    *setup = *k->setup;
    wd_trainer_options *t = &setup->trainer;
    setup->comm = t->stepper.comm = k->comm;
    t->stepper.teacher = &setup->teacher;
    t->teacher_key = setup->teacher_key;
    t->text_encoder_key = setup->text_encoder_key;
    t->prompts_key = t->negative_prompt = "";
    k->status = wd__train_agree(setup, &k->err);
    if (k->status == WD_OK) k->status = wd__train_agree_on_plan(&plan, setup, &k->err);
    free(setup);
    return NULL;
}

static wd_train_setup *open_setup(void)
{
    wd_train_setup *s = calloc(1, sizeof *s);
    s->options = wd_train_defaults();
    s->trainer.stepper.recipe = &wd_recipe_velocity;
    strcpy(s->teacher_key, "0123456789abcdef");
    strcpy(s->text_encoder_key, "0246");
    return s;
}

/* Two ranks with these set-ups. */
static keyed agreed(const wd_train_setup *first, const wd_train_setup *second)
{
    wd_err err;
    wd_comm *comm[2];
    keyed k[2] = {{.setup = first}, {.setup = second}};
    wd_test_ok(wd_comm_open_threads(comm, 2, &err), &err);
    for (int i = 0; i < 2; i++) {
        k[i].comm = comm[i];
        assert_int_equal(pthread_create(&k[i].thread, NULL, agree, &k[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(k[i].thread, NULL);
        wd_comm_close(comm[i]);
    }
    assert_int_equal(k[0].status, k[1].status);
    return k[0];
}

/* Checks that `second` is refused, and makes it equal to the first again. */
static void differ(wd_train_setup *second, const char *text)
{
    wd_train_setup *first = open_setup();
    keyed k = agreed(first, second);
    wd_test_refused(k.status, &k.err, WD_MISMATCH, text);
    *second = *first;
    free(first);
}

static void what_files_hold_is_one(void **state)
{
    (void)state;
    wd_train_setup *first = open_setup(), *second = open_setup();
    assert_int_equal(agreed(first, second).status, WD_OK);
    strcpy(second->teacher_key, "0123456789abcdee"); /* shown up to the digits that are equal */
    differ(second, "rank 0 and rank 1 differ in the teacher's weights: 01234567 on ");
    strcpy(second->text_encoder_key, "1357");
    differ(second, "rank 0 and rank 1 differ in the text encoder's weights: 0246 on ");
    second->trainer.stepper.student.layers = 3;
    differ(second, "rank 0 and rank 1 differ in student's num_layers: 0 and 3.");
    second->teacher.boundary_ratio = 0.5;
    differ(second, "rank 0 and rank 1 differ in teacher's boundary_ratio: 0.0 and 0.5.");
    second->teacher.scheduler.kind = WD_SCHEDULER_EULER;
    differ(second, "differ in teacher's scheduler: \"UniPCMultistepScheduler\" and \"FlowMatch");
    free(first);
    free(second);
}

/* Two checkpoints of one step, of different runs. */
static void what_a_run_goes_on_from_is_one(void **state)
{
    (void)state;
    static const char *const name[] = {"first", "second"};
    wd_train_setup *s[] = {open_setup(), open_setup()};
    wd_err err;
    for (int i = 0; i < 2; i++) {
        char run[WD_PATH_MAX], sums[WD_PATH_MAX];
        wd_test_ok(wd_path_join(run, wd_test_folder(), name[i], &err), &err);
        wd_test_ok(wd_path_join(s[i]->resume, run, "step-00000020", &err), &err);
        wd_test_ok(wd_folder_make(s[i]->resume, &err), &err);
        wd_test_ok(wd_path_join(sums, s[i]->resume, "checksums.xxh128", &err), &err);
        wd_test_ok(wd_file_write(sums, name[i], strlen(name[i]), &err), &err);
    }
    keyed k = agreed(s[0], s[1]);
    wd_test_refused(k.status, &k.err, WD_MISMATCH,
                    "differ in what is in the checkpoint that they find: ");
    assert_non_null(strstr(k.err.message, "They are of different runs"));
    assert_int_equal(agreed(s[0], s[0]).status, WD_OK);
    strcpy(s[1]->resume, s[0]->resume);
    strcat(s[1]->resume, "//"); /* the same folder, written differently */
    assert_int_equal(agreed(s[0], s[1]).status, WD_OK);
    char before[WD_PATH_MAX], run[WD_PATH_MAX];
    wd_test_ok(wd_path_join(run, wd_test_folder(), name[0], &err), &err);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(run), 0);
    strcpy(s[1]->resume, "step-00000020");
    assert_int_equal(agreed(s[0], s[1]).status, WD_OK);
    assert_int_equal(chdir(before), 0);
    free(s[0]);
    free(s[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_alike_go_on),
        cmocka_unit_test(who_differs_is_named),
        cmocka_unit_test(what_files_hold_is_one),
        cmocka_unit_test(what_a_run_goes_on_from_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
