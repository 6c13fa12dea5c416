/* See job/watch/watch_connect.h.
 *
 * Of two ranks the lower one listens and the higher one calls. After the three messages of
 * job/watch/watch_handshake.h the listener regards them as connected, and the caller does so when
 * it receives the first heartbeat: so neither keeps a connection that the other has given up.
 * Nobody knows which address of a machine can be reached from another one, so the caller tries all
 * of them, one after the other, again and again.
 *
 * Other programs may connect to the port meanwhile, as often as they like. So the listener keeps a
 * limited number of connections that have proved nothing yet (inbound), reads from them before it
 * accepts more, and closes one to make room only after it had a turn to send its message. */
#include "job/watch/watch_connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/memory.h"

static const double connect_s = 1, answer_s = 3, pause_s = 0.05;

enum { INBOUND_MORE = 128 }; /* inbound connections beyond one for each rank */
enum { ROUNDS_MAX = 16 };    /* of reading from inbound connections and accepting more, per turn */

/* A message that was received in part. */
typedef struct partial {
    wd_handshake_message message;
    size_t bytes;
} partial;

typedef enum stage { IDLE, CONNECTING, CALLED, CONFIRMED, DONE } stage;

/* The connection to a lower rank, and how far it has come. */
typedef struct attempt {
    stage stage;
    int fd, next; /* next: number of the address to try next; -1: the loopback */
    double since_s;
    wd_handshake handshake;
    partial in;
} attempt;

/* A connection to this rank's port that has not proved to be a rank yet. */
typedef struct inbound {
    int fd, rank; /* rank: the one that it claims to be; -1: it has not called yet */
    double since_s;
    wd_handshake handshake;
    partial in;
} inbound;

struct wd_connect {
    int rank, ranks, fd;
    bool one_machine;
    const wd_watch_address *all;
    bool *is_connected; /* [ranks] */
    attempt *attempt;   /* [rank] */
    int inbounds;
    inbound *inbound; /* [ranks + INBOUND_MORE] */
};

/* ---- listening ---- */

static bool bind_to(wd_connect *c, const void *address, socklen_t bytes)
{
    const int family = ((const struct sockaddr *)address)->sa_family, off = 0;
    c->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0) return false;
    if (family == AF_INET6) setsockopt(c->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (!bind(c->fd, address, bytes)) return true;
    close(c->fd);
    c->fd = -1;
    return false;
}

static wd_status listen_at(wd_connect *c, wd_watch_address *mine, wd_err *err)
{
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    const struct sockaddr_in own = {.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    const bool is_bound = c->one_machine
                              ? bind_to(c, &own, sizeof own)
                              : bind_to(c, &six, sizeof six) || bind_to(c, &four, sizeof four);
    if (!is_bound)
        return wd_fail(err, WD_IO, "the watch of rank %d gets no port: %s", c->rank,
                       strerror(errno));
    if (listen(c->fd, SOMAXCONN) || getsockname(c->fd, (struct sockaddr *)&bound, &bytes))
        return wd_fail(err, WD_IO, "the watch of rank %d cannot listen: %s", c->rank,
                       strerror(errno));
    mine->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                   : ((struct sockaddr_in *)&bound)->sin_port);
    return WD_OK;
}

/* Lists the addresses at which other machines may reach this one. */
static void find_addresses(wd_watch_address *mine)
{
    struct ifaddrs *all, *a;
    if (getifaddrs(&all)) return;
    for (a = all; a && mine->count < WD_WATCH_ADDRESSES_MAX; a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_flags & IFF_LOOPBACK || !(a->ifa_flags & IFF_UP)) continue;
        const int family = a->ifa_addr->sa_family;
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)a->ifa_addr;
        if (family != AF_INET && family != AF_INET6) continue;
        if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) continue;
        if (getnameinfo(a->ifa_addr, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof *six,
                        mine->address[mine->count], sizeof *mine->address, NULL, 0,
                        NI_NUMERICHOST) == 0)
            mine->count++;
    }
    freeifaddrs(all);
}

/* A machine is known by the boot id of its kernel and its namespace of process ids. */
static void find_machine(wd_watch_address *mine)
{
    char boot[40] = "", space[48] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file) {
        if (fscanf(file, "%39s", boot) != 1) *boot = 0;
        fclose(file);
    }
    const ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    if (n < 0) *space = 0;
    snprintf(mine->machine, sizeof mine->machine, "%s %s", boot, space);
}

wd_status wd__connect_listen(wd_connect **out, int rank, int ranks, bool one_machine,
                             wd_watch_address *mine, wd_err *err)
{
    wd_status status;
    wd_connect *c = NULL;
    *mine = (wd_watch_address){0};
    WD_TRY(wd_alloc((void **)&c, 1, sizeof *c, "the watch's connections", err));
    *c = (wd_connect){.rank = rank, .ranks = ranks, .fd = -1, .one_machine = one_machine};
    WD_TRY_OUT(wd_alloc((void **)&c->is_connected, (size_t)ranks, sizeof *c->is_connected,
                        "the watch", err));
    WD_TRY_OUT(wd_alloc((void **)&c->attempt, (size_t)ranks, sizeof *c->attempt, "the watch", err));
    WD_TRY_OUT(wd_alloc((void **)&c->inbound, (size_t)(ranks + INBOUND_MORE), sizeof *c->inbound,
                        "the watch", err));
    for (int r = 0; r < ranks; r++) c->attempt[r] = (attempt){.fd = -1, .next = -1};
    WD_TRY_OUT(listen_at(c, mine, err));
    if (getrandom(mine->secret, sizeof mine->secret, 0) != (ssize_t)sizeof mine->secret)
        WD_TRY_OUT(wd_fail(err, WD_IO, "no random bytes: %s", strerror(errno)));
    if (gethostname(mine->host, sizeof mine->host - 1)) *mine->host = 0;
    if (!one_machine) find_addresses(mine);
    find_machine(mine);
out:
    if (status == WD_OK)
        *out = c;
    else
        wd__connect_close(c);
    return status;
}

void wd__connect_begin(wd_connect *c, const wd_watch_address *all)
{
    c->all = all;
}

/* ---- messages ---- */

static const unsigned char *secret_of(const wd_connect *c)
{
    return c->all[0].secret;
}

/* A message fits into the buffer of any socket; false: the other side is gone. */
static bool send_message(int fd, const wd_handshake_message *message)
{
    return send(fd, message, sizeof *message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)sizeof *message;
}

typedef enum received { INCOMPLETE, COMPLETE, CLOSED } received;

static received receive_message(int fd, partial *in)
{
    const ssize_t n =
        recv(fd, (char *)&in->message + in->bytes, sizeof in->message - in->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return INCOMPLETE;
    if (n <= 0) return CLOSED;
    in->bytes += (size_t)n;
    if (in->bytes < sizeof in->message) return INCOMPLETE;
    in->bytes = 0;
    return COMPLETE;
}

static int hand_over(wd_connect *c, int rank, int from, int *fd)
{
    const int on = 1;
    setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *fd = from;
    c->is_connected[rank] = true;
    return rank;
}

/* ---- to the lower ranks ---- */

static void give_up(attempt *a, double now_s)
{
    if (a->fd >= 0) close(a->fd);
    *a = (attempt){.fd = -1, .next = a->next, .since_s = now_s};
}

/* The address to try now; moves a->next on. */
static const char *next_address(const wd_connect *c, int rank, attempt *a)
{
    const wd_watch_address *there = &c->all[rank];
    const bool is_here = c->one_machine || !strcmp(there->machine, c->all[c->rank].machine);
    const int i = a->next < 0 && !is_here ? 0 : a->next;
    a->next = i + 1 < there->count ? i + 1 : -1;
    return i < 0 ? "127.0.0.1" : i < there->count ? there->address[i] : NULL;
}

static void begin_attempt(const wd_connect *c, int rank, attempt *a, double now_s)
{
    char port[16];
    struct addrinfo *info,
        hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    if (a->since_s > 0 && now_s - a->since_s < pause_s) return;
    const char *address = next_address(c, rank, a);
    a->since_s = now_s;
    snprintf(port, sizeof port, "%d", (int)c->all[rank].port);
    if (!address || getaddrinfo(address, port, &hints, &info)) return;
    a->fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int rc = a->fd < 0 ? -1 : connect(a->fd, info->ai_addr, info->ai_addrlen);
    a->stage = CONNECTING;
    if (a->fd < 0 || (rc && errno != EINPROGRESS)) give_up(a, now_s);
    freeaddrinfo(info);
}

static bool call_rank(const wd_connect *c, int rank, attempt *a)
{
    wd_handshake_message call;
    return wd__handshake_call(&call, &a->handshake, c->rank, rank) && send_message(a->fd, &call);
}

static void see_connected(const wd_connect *c, int rank, attempt *a, double now_s)
{
    struct pollfd p = {.fd = a->fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (poll(&p, 1, 0) <= 0) {
        if (now_s - a->since_s > connect_s) give_up(a, now_s);
        return;
    }
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) || error ||
        !call_rank(c, rank, a)) {
        give_up(a, now_s);
        return;
    }
    a->stage = CALLED;
    a->since_s = now_s;
}

/* Whether the answer proves that the other side is the rank, and the confirmation was sent. */
static bool confirm(const wd_connect *c, attempt *a)
{
    wd_handshake_message end;
    if (!wd__handshake_is_answer(&a->in.message, &a->handshake, secret_of(c))) return false;
    wd__handshake_confirm(&end, &a->handshake, secret_of(c));
    return send_message(a->fd, &end);
}

static void receive_answer(const wd_connect *c, attempt *a, double now_s)
{
    const received h = receive_message(a->fd, &a->in);
    if (h == COMPLETE && confirm(c, a))
        a->stage = CONFIRMED;
    else if (h != INCOMPLETE || now_s - a->since_s > answer_s)
        give_up(a, now_s);
}

/* Whether the rank has sent its first heartbeat, which is not read here. */
static bool has_heartbeat(attempt *a, double now_s)
{
    char byte;
    const ssize_t n = recv(a->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        give_up(a, now_s);
    return n > 0;
}

/* Whether the rank is connected. */
static bool step_attempt(const wd_connect *c, int rank, attempt *a, double now_s)
{
    if (a->stage == IDLE) begin_attempt(c, rank, a, now_s);
    if (a->stage == CONNECTING) see_connected(c, rank, a, now_s);
    if (a->stage == CALLED) receive_answer(c, a, now_s);
    return a->stage == CONFIRMED && has_heartbeat(a, now_s);
}

/* ---- from the higher ranks, or other programs ---- */

static void drop(wd_connect *c, int i)
{
    close(c->inbound[i].fd);
    c->inbound[i] = c->inbound[--c->inbounds];
}

/* The inbound connection to close so that there is room: the oldest one of earlier turns, and one
 * that has called only if there are no others. -1: none. */
static int find_to_drop(const wd_connect *c, double now_s)
{
    int found = -1;
    for (int i = 0; i < c->inbounds; i++) {
        const inbound *s = &c->inbound[i], *other = &c->inbound[found < 0 ? i : found];
        if (s->since_s >= now_s) continue;
        const bool calls = s->rank >= 0, other_calls = other->rank >= 0;
        if (found < 0 || (calls == other_calls ? s->since_s < other->since_s : other_calls))
            found = i;
    }
    return found;
}

static bool make_room(wd_connect *c, double now_s)
{
    const int i = find_to_drop(c, now_s);
    if (i >= 0) drop(c, i);
    return i >= 0;
}

/* Accepts inbound connections; whether there was one. */
static bool accept_inbound(wd_connect *c, double now_s)
{
    bool some = false;
    for (;;) {
        if (c->inbounds == c->ranks + INBOUND_MORE && !make_room(c, now_s)) return some;
        const int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && make_room(c, now_s)) continue;
        if (fd < 0) return some;
        c->inbound[c->inbounds++] = (inbound){.fd = fd, .rank = -1, .since_s = now_s};
        some = true;
    }
}

/* Whether the message is the call of a rank, and the answer was sent. */
static bool answer(const wd_connect *c, inbound *s)
{
    wd_handshake_message message;
    if (!wd__handshake_is_call(&s->in.message, c->rank, c->ranks) ||
        c->is_connected[s->in.message.from] ||
        !wd__handshake_answer(&message, &s->handshake, &s->in.message, secret_of(c)))
        return false;
    s->rank = s->in.message.from;
    return send_message(s->fd, &message);
}

/* Whether the inbound connection is now a connected rank; *gone: it is to be closed. */
static bool step_inbound(const wd_connect *c, inbound *s, bool *gone, double now_s)
{
    const received h = receive_message(s->fd, &s->in);
    *gone = h == CLOSED || now_s - s->since_s > answer_s;
    if (h != COMPLETE || *gone) return false;
    const bool called = s->rank >= 0;
    const bool is_rank = called && !c->is_connected[s->rank] &&
                         wd__handshake_is_confirmation(&s->in.message, &s->handshake, secret_of(c));
    *gone = called ? !is_rank : !answer(c, s);
    return is_rank;
}

/* A rank that has connected to this one; -1: none. */
static int step_inbounds(wd_connect *c, int *fd, double now_s)
{
    for (int i = 0; i < c->inbounds;) {
        bool gone;
        inbound *s = &c->inbound[i];
        if (step_inbound(c, s, &gone, now_s)) {
            const int rank = hand_over(c, s->rank, s->fd, fd);
            *s = c->inbound[--c->inbounds];
            return rank;
        }
        if (gone)
            drop(c, i);
        else
            i++;
    }
    return -1;
}

/* ---- all connections ---- */

int wd__connect_step(wd_connect *c, int *fd, double now_s)
{
    for (int round = 0; round < ROUNDS_MAX; round++) {
        const int rank = step_inbounds(c, fd, now_s);
        if (rank >= 0) return rank;
        if (!accept_inbound(c, now_s)) break;
    }
    for (int r = 0; r < c->rank; r++) {
        attempt *a = &c->attempt[r];
        if (a->stage != DONE && step_attempt(c, r, a, now_s)) {
            a->stage = DONE;
            return hand_over(c, r, a->fd, fd);
        }
    }
    return -1;
}

void wd__connect_close(wd_connect *c)
{
    if (!c) return;
    for (int i = 0; i < c->inbounds; i++) close(c->inbound[i].fd);
    for (int r = 0; c->attempt && r < c->rank; r++)
        if (c->attempt[r].stage != DONE && c->attempt[r].fd >= 0) close(c->attempt[r].fd);
    if (c->fd >= 0) close(c->fd);
    wd_free(c->is_connected);
    wd_free(c->attempt);
    wd_free(c->inbound);
    wd_free(c);
}
