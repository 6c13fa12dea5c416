/* Ranks that were started alike go on; one that was not is named, on all of them, and so is one
 * that has another teacher. */
#include "api/agreement.h"

#include "testing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4 };

static void say(wd_agreement *a, int batch, const char *prompts)
{
    char text[16];
    *a = (wd_agreement){0};
    snprintf(text, sizeof text, "%d", batch);
    wd_agree_on_text(a, "seed", "7");
    wd_agree_on_text(a, "batch_size", text);
    wd_agree_on_bytes(a, "the prompts", prompts, strlen(prompts));
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
    r->status = wd_agreement_check(&a, r->comm, &r->err);
    return NULL;
}

/* Ranks with these batch sizes and prompts: all say the same of it. */
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
    r = checked((const int[]){2, 4, 4, 2}, other); /* the first thing is said, and how many */
    wd_test_refused(r.status, &r.err, WD_MISMATCH,
                    "rank 0 and rank 1 and 1 more differ in batch_size: 2 and 4.");
    r = checked((const int[]){2, 2, 2, 2}, other);
    wd_test_refused(r.status, &r.err, WD_MISMATCH,
                    "rank 0 and rank 3 differ in the prompts.");
}

/* ---- of a run ---- */

typedef struct keyed {
    pthread_t thread;
    wd_comm *comm;
    const char *key;
    wd_status status;
    wd_err err;
} keyed;

static void *agree(void *context)
{
    static const wd_train_plan plan; /* alike */
    keyed *k = context;
    wd_train_setup *setup = calloc(1, sizeof *setup);
    setup->options = wd_train_defaults();
    setup->trainer.machine.comm = k->comm;
    snprintf(setup->teacher_key, sizeof setup->teacher_key, "%s", k->key);
    k->status = wd_train_agree(&plan, setup, &k->err);
    free(setup);
    return NULL;
}

/* Two ranks whose teachers have these keys. */
static keyed agreed(const char *first, const char *second)
{
    wd_err err;
    wd_comm *comm[2];
    keyed k[2] = {{.key = first}, {.key = second}};
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

/* Keys that differ where the text that is said of them does not. */
static void teachers_are_one(void **state)
{
    (void)state;
    assert_int_equal(agreed("0123456789abcdef", "0123456789abcdef").status, WD_OK);
    keyed k = agreed("0123456789abcdef", "0123456789abcdee");
    wd_test_refused(k.status, &k.err, WD_MISMATCH,
                    "rank 0 and rank 1 differ in the teacher's weights: 01234567 on ");
    assert_non_null(strstr(k.err.message, "let --teacher_path be the same folder on all hosts"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_alike_go_on),
        cmocka_unit_test(who_differs_is_named),
        cmocka_unit_test(teachers_are_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
