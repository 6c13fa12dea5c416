/* Ranks that were started alike go on; one that was not is named, on all of them. */
#include "api/agreement.h"

#include "testing.h"

#include <pthread.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_alike_go_on),
        cmocka_unit_test(who_differs_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
