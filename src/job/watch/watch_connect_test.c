/* Two ranks whose watches connect, step by step and by a clock of the test's, while other programs
 * connect, too. */
#include "testing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job/watch/watch_connect.h"

enum { RANKS = 2, TURNS_MAX = 40, FLOOD = 200 };
static const double turn_s = 0.005;

typedef struct pair {
    wd_connect *connect[RANKS];
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
        wd_test_ok(wd__connect_listen(&p->connect[r], r, RANKS, true, &p->all[r], &err), &err);
    }
    memcpy(p->wrong, p->all, sizeof p->all);
    p->wrong[0].secret[WD_SECRET_BYTES - 1] ^= 1;
    wd__connect_begin(p->connect[0], p->all);
    wd__connect_begin(p->connect[1], same_secret ? p->all : p->wrong);
}

static void close_pair(pair *p)
{
    for (int i = 0; i < FLOOD; i++)
        if (p->flood[i] >= 0) close(p->flood[i]);
    for (int r = 0; r < RANKS; r++) {
        if (p->fd[r] >= 0) close(p->fd[r]);
        wd__connect_close(p->connect[r]);
    }
}

/* Like its watch it sends a heartbeat once it is connected. */
static void step(pair *p, int rank)
{
    int fd;
    const int other = wd__connect_step(p->connect[rank], &fd, p->now_s);
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

/* Closes some of the silent connections and opens as many others. */
static void flood(pair *p, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        if (p->flood[i] >= 0) close(p->flood[i]);
        p->flood[i] = connect_to(p->all[0].port);
    }
}

static bool are_connected(const pair *p)
{
    return p->fd[0] >= 0 && p->fd[1] >= 0;
}

static void ranks_connect(void **state)
{
    (void)state;
    pair p;
    open_pair(&p, true);
    for (int turn = 0; turn < TURNS_MAX && !are_connected(&p); turn++, p.now_s += turn_s)
        for (int r = 0; r < RANKS; r++) step(&p, r);
    assert_true(are_connected(&p));
    close_pair(&p);
}

/* In each turn many more programs connect than there is room for, before the rank and after it. */
static void ranks_connect_in_a_flood(void **state)
{
    (void)state;
    pair p;
    open_pair(&p, true);
    for (int turn = 0; turn < TURNS_MAX && !are_connected(&p); turn++, p.now_s += turn_s) {
        flood(&p, 0, FLOOD / 4);
        step(&p, 1);
        flood(&p, FLOOD / 4, FLOOD);
        step(&p, 0);
    }
    assert_true(are_connected(&p));
    close_pair(&p);
}

/* Whether the other side has closed a socket. */
static bool is_closed(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

/* A connection without a message is closed after seconds, also where there is room; a later one
 * stays. */
static void a_silent_connection_is_closed(void **state)
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

/* The connection of a rank that has called stays while there are others of earlier turns to close.
 */
static void a_rank_that_has_called_stays(void **state)
{
    (void)state;
    pair p;
    wd_handshake_message message;
    wd_handshake handshake;
    open_pair(&p, true);
    const int fd = connect_to(p.all[0].port);
    assert_true(wd__handshake_call(&message, &handshake, 1, 0));
    assert_int_equal(send(fd, &message, sizeof message, MSG_NOSIGNAL), sizeof message);
    for (int turn = 0; turn < 4; turn++, p.now_s += turn_s) {
        step(&p, 0);
        flood(&p, turn % 2 * FLOOD / 2, (turn % 2 + 1) * FLOOD / 2);
    }
    assert_int_equal(recv(fd, &message, sizeof message, MSG_DONTWAIT), sizeof message);
    assert_true(wd__handshake_is_answer(&message, &handshake, p.all[0].secret));
    wd__handshake_confirm(&message, &handshake, p.all[0].secret);
    assert_int_equal(send(fd, &message, sizeof message, MSG_NOSIGNAL), sizeof message);
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
    wd_handshake_message call, answer, end;
    wd_handshake caller, listener;
} words;

static words say_words(void)
{
    words w;
    assert_true(wd__handshake_call(&w.call, &w.caller, 1, 0));
    assert_true(wd__handshake_is_call(&w.call, 0, RANKS));
    assert_true(wd__handshake_answer(&w.answer, &w.listener, &w.call, secret));
    assert_true(wd__handshake_is_answer(&w.answer, &w.caller, secret));
    wd__handshake_confirm(&w.end, &w.caller, secret);
    assert_true(wd__handshake_is_confirmation(&w.end, &w.listener, secret));
    return w;
}

/* The messages of one handshake prove nothing in another one, nor does the proof of the other side.
 */
static void words_are_good_once(void **state)
{
    (void)state;
    words a = say_words(), b = say_words();
    assert_memory_not_equal(a.call.nonce, b.call.nonce, WD_NONCE_BYTES);
    assert_false(wd__handshake_is_answer(&a.answer, &b.caller, secret));
    assert_false(wd__handshake_is_confirmation(&a.end, &b.listener, secret));
    wd_handshake_message reflected = a.end;
    memcpy(reflected.proof, a.answer.proof, sizeof reflected.proof);
    assert_false(wd__handshake_is_confirmation(&reflected, &a.listener, secret));
    assert_true(wd__handshake_is_confirmation(&a.end, &a.listener, secret));
    assert_false(wd__handshake_is_confirmation(&a.end, &a.listener, other));
}

static void words_of_no_rank_are_none(void **state)
{
    (void)state;
    wd_handshake_message message;
    wd_handshake handshake;
    assert_true(wd__handshake_call(&message, &handshake, 1, 0));
    assert_false(wd__handshake_is_call(&message, 1, RANKS)); /* to itself */
    assert_true(wd__handshake_call(&message, &handshake, 0, 1));
    assert_false(wd__handshake_is_call(&message, 1, RANKS)); /* of a lower rank */
    assert_true(wd__handshake_call(&message, &handshake, RANKS, 0));
    assert_false(wd__handshake_is_call(&message, 0, RANKS)); /* there is no such rank */
    assert_true(wd__handshake_call(&message, &handshake, 1, 0));
    message.greeting[0] = 'W';
    assert_false(wd__handshake_is_call(&message, 0, RANKS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_connect),
        cmocka_unit_test(ranks_connect_in_a_flood),
        cmocka_unit_test(a_silent_connection_is_closed),
        cmocka_unit_test(a_rank_that_has_called_stays),
        cmocka_unit_test(another_secret_is_no_rank),
        cmocka_unit_test(words_are_good_once),
        cmocka_unit_test(words_of_no_rank_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
