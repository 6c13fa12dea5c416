/* Two ranks that meet, step by step and by a clock of the test's, while others connect, too. */
#include "testing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/watch_meet.h"

enum { RANKS = 2, TURNS_MAX = 40, FLOOD = 200 };
static const double turn_s = 0.005;

typedef struct pair {
    wd_meet *meet[RANKS];
    wd_watch_address all[RANKS], wrong[RANKS]; /* wrong: with another secret */
    int fd[RANKS];                             /* -1: not connected yet */
    double now_s;
    int flood[FLOOD];
} pair;

static void open_pair(pair *p, bool same_secret)
{
    wd_err err = {0};
    *p = (pair){.now_s = 1000};
    memset(p->flood, -1, sizeof p->flood);
    for (int r = 0; r < RANKS; r++) {
        p->fd[r] = -1;
        wd_test_ok(wd_meet_listen(&p->meet[r], r, RANKS, true, &p->all[r], &err), &err);
    }
    memcpy(p->wrong, p->all, sizeof p->all);
    p->wrong[0].secret[WD_SECRET_BYTES - 1] ^= 1;
    wd_meet_begin(p->meet[0], p->all);
    wd_meet_begin(p->meet[1], same_secret ? p->all : p->wrong);
}

static void close_pair(pair *p)
{
    for (int i = 0; i < FLOOD; i++)
        if (p->flood[i] >= 0) close(p->flood[i]);
    for (int r = 0; r < RANKS; r++) {
        if (p->fd[r] >= 0) close(p->fd[r]);
        wd_meet_close(p->meet[r]);
    }
}

/* As its watch does: whoever is connected gives signs of life. */
static void step(pair *p, int rank)
{
    int fd;
    const int other = wd_meet_step(p->meet[rank], &fd, p->now_s);
    if (other < 0) return;
    assert_int_equal(other, !rank);
    assert_int_equal(p->fd[rank], -1);
    p->fd[rank] = fd;
    assert_int_equal(send(fd, "", 1, MSG_NOSIGNAL), 1);
}

static int connect_to(int port)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    (void)connect(fd, (const struct sockaddr *)&to, sizeof to);
    return fd;
}

/* Some of those who say nothing go, and as many others come. */
static void flood(pair *p, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        if (p->flood[i] >= 0) close(p->flood[i]);
        p->flood[i] = connect_to(p->all[0].port);
    }
}

static bool have_met(const pair *p)
{
    return p->fd[0] >= 0 && p->fd[1] >= 0;
}

static void ranks_meet(void **state)
{
    (void)state;
    pair p;
    open_pair(&p, true);
    for (int turn = 0; turn < TURNS_MAX && !have_met(&p); turn++, p.now_s += turn_s)
        for (int r = 0; r < RANKS; r++) step(&p, r);
    assert_true(have_met(&p));
    close_pair(&p);
}

/* In each turn many more come than there are places, before the rank does and after it. */
static void a_flood_does_not_keep_them_apart(void **state)
{
    (void)state;
    pair p;
    open_pair(&p, true);
    for (int turn = 0; turn < TURNS_MAX && !have_met(&p); turn++, p.now_s += turn_s) {
        flood(&p, 0, FLOOD / 4);
        step(&p, 1);
        flood(&p, FLOOD / 4, FLOOD);
        step(&p, 0);
    }
    assert_true(have_met(&p));
    close_pair(&p);
}

/* Whether the other side has closed a socket. */
static bool is_closed(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

/* Who says nothing for seconds goes, also where there is room; who came later stays. */
static void who_says_nothing_goes(void **state)
{
    (void)state;
    pair p;
    open_pair(&p, true);
    const int silent = connect_to(p.all[0].port);
    step(&p, 0);
    p.now_s += 2;
    const int later = connect_to(p.all[0].port);
    step(&p, 0);
    assert_false(is_closed(silent));
    p.now_s += 2;
    step(&p, 0);
    assert_true(is_closed(silent));
    assert_false(is_closed(later));
    close(silent);
    close(later);
    close_pair(&p);
}

/* A rank that has called, and has its answer, keeps its place while there are others of earlier
 * turns that can go. */
static void who_has_called_stays(void **state)
{
    (void)state;
    pair p;
    wd_watch_word word;
    wd_watch_talk talk;
    open_pair(&p, true);
    const int fd = connect_to(p.all[0].port);
    assert_true(wd_watch_call(&word, &talk, 1, 0));
    assert_int_equal(send(fd, &word, sizeof word, MSG_NOSIGNAL), sizeof word);
    for (int turn = 0; turn < 4; turn++, p.now_s += turn_s) {
        step(&p, 0);
        flood(&p, turn % 2 * FLOOD / 2, (turn % 2 + 1) * FLOOD / 2);
    }
    assert_int_equal(recv(fd, &word, sizeof word, MSG_DONTWAIT), sizeof word);
    assert_true(wd_watch_is_answer(&word, &talk, p.all[0].secret));
    wd_watch_confirm(&word, &talk, p.all[0].secret);
    assert_int_equal(send(fd, &word, sizeof word, MSG_NOSIGNAL), sizeof word);
    step(&p, 0);
    assert_true(p.fd[0] >= 0);
    close(fd);
    close_pair(&p);
}

static void another_secret_is_no_rank(void **state)
{
    (void)state;
    pair p;
    open_pair(&p, false);
    for (int turn = 0; turn < TURNS_MAX; turn++, p.now_s += turn_s)
        for (int r = 0; r < RANKS; r++) step(&p, r);
    assert_int_equal(p.fd[0], -1);
    assert_int_equal(p.fd[1], -1);
    close_pair(&p);
}

/* ---- the words ---- */

static const unsigned char secret[WD_SECRET_BYTES] = "a secret", other[WD_SECRET_BYTES] = "another";

typedef struct words {
    wd_watch_word call, answer, end;
    wd_watch_talk caller, listener;
} words;

static words say_words(void)
{
    words w;
    assert_true(wd_watch_call(&w.call, &w.caller, 1, 0));
    assert_true(wd_watch_is_call(&w.call, 0, RANKS));
    assert_true(wd_watch_answer(&w.answer, &w.listener, &w.call, secret));
    assert_true(wd_watch_is_answer(&w.answer, &w.caller, secret));
    wd_watch_confirm(&w.end, &w.caller, secret);
    assert_true(wd_watch_is_close(&w.end, &w.listener, secret));
    return w;
}

/* What was heard of one talk proves nothing in another, nor does the other side's own proof. */
static void words_are_good_once(void **state)
{
    (void)state;
    words a = say_words(), b = say_words();
    assert_memory_not_equal(a.call.nonce, b.call.nonce, WD_NONCE_BYTES);
    assert_false(wd_watch_is_answer(&a.answer, &b.caller, secret));
    assert_false(wd_watch_is_close(&a.end, &b.listener, secret));
    wd_watch_word reflected = a.end;
    memcpy(reflected.proof, a.answer.proof, sizeof reflected.proof);
    assert_false(wd_watch_is_close(&reflected, &a.listener, secret));
    assert_true(wd_watch_is_close(&a.end, &a.listener, secret));
    assert_false(wd_watch_is_close(&a.end, &a.listener, other));
}

static void words_of_no_rank_are_none(void **state)
{
    (void)state;
    wd_watch_word word;
    wd_watch_talk talk;
    assert_true(wd_watch_call(&word, &talk, 1, 0));
    assert_false(wd_watch_is_call(&word, 1, RANKS)); /* to itself */
    assert_true(wd_watch_call(&word, &talk, 0, 1));
    assert_false(wd_watch_is_call(&word, 1, RANKS)); /* of a lower rank */
    assert_true(wd_watch_call(&word, &talk, RANKS, 0));
    assert_false(wd_watch_is_call(&word, 0, RANKS)); /* there is no such rank */
    assert_true(wd_watch_call(&word, &talk, 1, 0));
    word.greeting[0] = 'W';
    assert_false(wd_watch_is_call(&word, 0, RANKS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet),
        cmocka_unit_test(a_flood_does_not_keep_them_apart),
        cmocka_unit_test(who_says_nothing_goes),
        cmocka_unit_test(who_has_called_stays),
        cmocka_unit_test(another_secret_is_no_rank),
        cmocka_unit_test(words_are_good_once),
        cmocka_unit_test(words_of_no_rank_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
