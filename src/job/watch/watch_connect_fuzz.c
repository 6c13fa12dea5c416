/* Fuzz target: programs connect to the port at which a rank waits for the others, and send any
 * bytes. Every input byte is an action of one of four callers: 2 bits choose the caller, 4 bits the
 * action, 2 bits the rank that the caller claims to be. Only a caller that has sent both of its
 * messages rightly is taken for a rank. */
#include "fuzzing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "job/watch/watch_connect.h"

enum { RANKS = 3, CALLERS = 4, BYTES_EACH = 16 };

typedef enum action { CONNECT, SAY_BYTES, CALL, CONFIRM, LEAVE, WAIT } action;

typedef struct caller {
    int fd; /* -1: not connected */
    int rank;
    wd_handshake handshake;
    bool proved; /* has sent the right confirmation */
} caller;

static wd_connect *connections;
static wd_watch_address all[RANKS];
static caller callers[CALLERS];
static double now_s;

static void leave(caller *c)
{
    if (c->fd >= 0) close(c->fd);
    *c = (caller){.fd = -1};
}

static void connect_caller(caller *c)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(all[0].port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    leave(c);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0) abort();
    (void)connect(c->fd, (const struct sockaddr *)&to, sizeof to);
}

static void say(const caller *c, const void *data, size_t bytes)
{
    (void)!send(c->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void call(caller *c, int rank)
{
    wd_handshake_message message;
    c->rank = rank;
    if (!wd__handshake_call(&message, &c->handshake, rank, 0)) abort();
    say(c, &message, sizeof message);
}

/* Reads the answer, if it has arrived, and sends the confirmation. */
static void confirm(caller *c)
{
    wd_handshake_message message;
    if (recv(c->fd, &message, sizeof message, MSG_DONTWAIT) != (ssize_t)sizeof message) return;
    if (!wd__handshake_is_answer(&message, &c->handshake, all[0].secret))
        return; /* of an earlier call */
    wd__handshake_confirm(&message, &c->handshake, all[0].secret);
    say(c, &message, sizeof message);
    c->proved = true;
}

/* A connection that is taken for a rank has proved it. */
static void step(void)
{
    int fd;
    const int rank = wd__connect_step(connections, &fd, now_s);
    if (rank < 0) return;
    close(fd);
    for (int i = 0; i < CALLERS; i++)
        if (callers[i].proved && callers[i].rank == rank) return;
    abort();
}

static size_t act(caller *c, action what, int rank, const uint8_t *data, size_t bytes)
{
    const size_t said = bytes < BYTES_EACH ? bytes : BYTES_EACH;
    if (what == CONNECT) connect_caller(c);
    if (what == WAIT) now_s += 0.7;
    if (c->fd < 0) return 0;
    if (what == LEAVE) leave(c);
    if (what == CALL) call(c, rank);
    if (what == CONFIRM) confirm(c);
    if (what == SAY_BYTES) say(c, data, said);
    return what == SAY_BYTES ? said : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    now_s = 1000;
    if (wd__connect_listen(&connections, 0, RANKS, true, &all[0], &err) != WD_OK) abort();
    wd__connect_begin(connections, all);
    for (int i = 0; i < CALLERS; i++) callers[i] = (caller){.fd = -1};
    for (size_t i = 0; i < bytes;) {
        const uint8_t d = data[i++];
        i += act(&callers[d % CALLERS], (action)(d / CALLERS % 16), d / 64, data + i, bytes - i);
        step();
    }
    for (int i = 0; i < CALLERS; i++) leave(&callers[i]);
    wd__connect_close(connections);
    return 0;
}
