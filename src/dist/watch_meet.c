/* See dist/watch_meet.h.
 *
 * The lower rank listens. Three words: who connects says what it is and what it knows (a hello), is
 * answered with the same, and confirms it; only then are both sure that the other has not given up
 * meanwhile. What a rank's address is seen from elsewhere is tried out: all that it has, one after
 * the other, again and again. */
#include "dist/watch_meet.h"

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

static const char greeting[8] = "wd-rank";
static const double connect_s = 1, answer_s = 3, pause_s = 0.05;

enum { STRANGERS_MORE = 8 }; /* room for connections beyond those of the ranks */

typedef struct hello {
    char greeting[sizeof greeting];
    unsigned char secret[16];
    int32_t from, to;
} hello;

/* A hello that is on its way here. */
typedef struct incoming {
    hello data;
    size_t bytes;
} incoming;

typedef enum stage { IDLE, CONNECTING, ASKING, DONE } stage;

/* The way to a lower rank. */
typedef struct attempt {
    stage stage;
    int fd, next; /* which address is tried next; -1: the loopback */
    double since_s;
    incoming in;
} attempt;

/* Somebody who has connected. */
typedef struct stranger {
    int fd, rank; /* -1: has not said yet */
    double since_s;
    incoming in;
} stranger;

struct wd_meet {
    int rank, ranks, fd;
    const wd_watch_address *all;
    bool *met;        /* [ranks] */
    attempt *attempt; /* [rank] */
    int strangers;
    stranger *stranger; /* [ranks + STRANGERS_MORE] */
};

/* ---- listening ---- */

static wd_status listen_at(wd_meet *m, wd_watch_address *mine, wd_err *err)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    const int flags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, off = 0;
    m->fd = socket(AF_INET6, flags, 0);
    if (m->fd >= 0) setsockopt(m->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (m->fd < 0 || bind(m->fd, (struct sockaddr *)&six, sizeof six)) {
        if (m->fd >= 0) close(m->fd);
        m->fd = socket(AF_INET, flags, 0);
        if (m->fd < 0 || bind(m->fd, (struct sockaddr *)&four, sizeof four))
            return wd_fail(err, WD_IO, "the watch of rank %d gets no port: %s", m->rank,
                           strerror(errno));
    }
    if (listen(m->fd, 128) || getsockname(m->fd, (struct sockaddr *)&bound, &bytes))
        return wd_fail(err, WD_IO, "the watch of rank %d cannot listen: %s", m->rank,
                       strerror(errno));
    mine->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                   : ((struct sockaddr_in *)&bound)->sin_port);
    return WD_OK;
}

/* Addresses at which other machines may reach this one. */
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

/* The boot of the kernel and the namespace of process ids. */
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

wd_status wd_meet_listen(wd_meet **out, int rank, int ranks, wd_watch_address *mine, wd_err *err)
{
    wd_status status;
    wd_meet *m = NULL;
    *mine = (wd_watch_address){.pid = getpid()};
    WD_TRY(wd_alloc((void **)&m, 1, sizeof *m, "the watch's meeting", err));
    *m = (wd_meet){.rank = rank, .ranks = ranks, .fd = -1};
    WD_TRY_OUT(wd_alloc((void **)&m->met, (size_t)ranks, sizeof *m->met, "the watch", err));
    WD_TRY_OUT(wd_alloc((void **)&m->attempt, (size_t)ranks, sizeof *m->attempt, "the watch", err));
    WD_TRY_OUT(wd_alloc((void **)&m->stranger, (size_t)(ranks + STRANGERS_MORE),
                        sizeof *m->stranger, "the watch", err));
    for (int r = 0; r < ranks; r++) m->attempt[r] = (attempt){.fd = -1, .next = -1};
    WD_TRY_OUT(listen_at(m, mine, err));
    if (getrandom(mine->secret, sizeof mine->secret, 0) != (ssize_t)sizeof mine->secret)
        WD_TRY_OUT(wd_fail(err, WD_IO, "no random bytes: %s", strerror(errno)));
    if (gethostname(mine->host, sizeof mine->host - 1)) *mine->host = 0;
    find_addresses(mine);
    find_machine(mine);
out:
    if (status == WD_OK)
        *out = m;
    else
        wd_meet_close(m);
    return status;
}

void wd_meet_begin(wd_meet *meet, const wd_watch_address *all)
{
    meet->all = all;
}

/* ---- hellos ---- */

/* Small enough for every socket's buffer; false: the other side is gone. */
static bool say_hello(const wd_meet *m, int fd, int to)
{
    hello h = {.from = m->rank, .to = to};
    memcpy(h.greeting, greeting, sizeof greeting);
    memcpy(h.secret, m->all[0].secret, sizeof h.secret);
    return send(fd, &h, sizeof h, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof h;
}

typedef enum heard { NOTHING_YET, HELLO, NO_HELLO } heard;

static heard hear_hello(const wd_meet *m, int fd, incoming *in)
{
    const ssize_t n =
        recv(fd, (char *)&in->data + in->bytes, sizeof in->data - in->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return NOTHING_YET;
    if (n <= 0) return NO_HELLO;
    in->bytes += (size_t)n;
    if (in->bytes < sizeof in->data) return NOTHING_YET;
    const hello *h = &in->data;
    in->bytes = 0;
    return !memcmp(h->greeting, greeting, sizeof greeting) && h->to == m->rank && h->from >= 0 &&
                   h->from < m->ranks && h->from != m->rank &&
                   !memcmp(h->secret, m->all[0].secret, sizeof h->secret)
               ? HELLO
               : NO_HELLO;
}

static int hand_over(wd_meet *m, int rank, int from, int *fd)
{
    const int on = 1;
    setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *fd = from;
    m->met[rank] = true;
    return rank;
}

/* ---- to the lower ranks ---- */

static void give_up(attempt *a, double now_s)
{
    if (a->fd >= 0) close(a->fd);
    *a = (attempt){.fd = -1, .next = a->next, .since_s = now_s};
}

/* What is tried now, and which comes after it. */
static const char *next_address(const wd_meet *m, int rank, attempt *a)
{
    const wd_watch_address *there = &m->all[rank];
    const bool is_here = !strcmp(there->machine, m->all[m->rank].machine);
    const int i = a->next < 0 && !is_here ? 0 : a->next;
    a->next = i + 1 < there->count ? i + 1 : -1;
    return i < 0 ? "127.0.0.1" : i < there->count ? there->address[i] : NULL;
}

static void begin_attempt(const wd_meet *m, int rank, attempt *a, double now_s)
{
    char port[16];
    struct addrinfo *info,
        hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    if (a->since_s > 0 && now_s - a->since_s < pause_s) return;
    const char *address = next_address(m, rank, a);
    a->since_s = now_s;
    snprintf(port, sizeof port, "%d", (int)m->all[rank].port);
    if (!address || getaddrinfo(address, port, &hints, &info)) return;
    a->fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int rc = a->fd < 0 ? -1 : connect(a->fd, info->ai_addr, info->ai_addrlen);
    a->stage = CONNECTING;
    if (a->fd < 0 || (rc && errno != EINPROGRESS)) give_up(a, now_s);
    freeaddrinfo(info);
}

static void see_connected(const wd_meet *m, int rank, attempt *a, double now_s)
{
    struct pollfd p = {.fd = a->fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (poll(&p, 1, 0) <= 0) {
        if (now_s - a->since_s > connect_s) give_up(a, now_s);
        return;
    }
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) || error ||
        !say_hello(m, a->fd, rank)) {
        give_up(a, now_s);
        return;
    }
    a->stage = ASKING;
    a->since_s = now_s;
}

/* Whether the rank has answered. */
static bool step_attempt(const wd_meet *m, int rank, attempt *a, double now_s)
{
    if (a->stage == IDLE) begin_attempt(m, rank, a, now_s);
    if (a->stage == CONNECTING) see_connected(m, rank, a, now_s);
    if (a->stage != ASKING) return false;
    const heard h = hear_hello(m, a->fd, &a->in);
    if (h == HELLO && a->in.data.from == rank && say_hello(m, a->fd, rank)) return true;
    if (h != NOTHING_YET || now_s - a->since_s > answer_s) give_up(a, now_s);
    return false;
}

/* ---- from the higher ones, and whoever else ---- */

static void turn_away(wd_meet *m, int i)
{
    close(m->stranger[i].fd);
    m->stranger[i] = m->stranger[--m->strangers];
}

/* Where there is no room, who has waited longest without a word goes. */
static void take_strangers(wd_meet *m, double now_s)
{
    int fd;
    while ((fd = accept4(m->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (m->strangers == m->ranks + STRANGERS_MORE) {
            int oldest = 0;
            for (int i = 1; i < m->strangers; i++)
                if (m->stranger[i].rank < 0 &&
                    (m->stranger[oldest].rank >= 0 ||
                     m->stranger[i].since_s < m->stranger[oldest].since_s))
                    oldest = i;
            turn_away(m, oldest);
        }
        m->stranger[m->strangers++] = (stranger){.fd = fd, .rank = -1, .since_s = now_s};
    }
}

/* Whether the stranger is now a rank that is connected; *gone: is nobody. */
static bool step_stranger(const wd_meet *m, stranger *s, bool *gone, double now_s)
{
    const heard h = hear_hello(m, s->fd, &s->in);
    *gone = h == NO_HELLO || (s->rank < 0 && now_s - s->since_s > answer_s);
    if (h != HELLO || *gone) return false;
    const int from = s->in.data.from;
    if (s->rank >= 0) return from == s->rank && !m->met[from];
    s->rank = from;
    *gone = from < m->rank || m->met[from] || !say_hello(m, s->fd, from);
    return false;
}

/* ---- all together ---- */

int wd_meet_step(wd_meet *m, int *fd, double now_s)
{
    take_strangers(m, now_s);
    for (int i = 0; i < m->strangers;) {
        bool gone;
        stranger *s = &m->stranger[i];
        if (step_stranger(m, s, &gone, now_s)) {
            const int rank = hand_over(m, s->rank, s->fd, fd);
            *s = m->stranger[--m->strangers];
            return rank;
        }
        if (gone)
            turn_away(m, i);
        else
            i++;
    }
    for (int r = 0; r < m->rank; r++) {
        attempt *a = &m->attempt[r];
        if (a->stage != DONE && step_attempt(m, r, a, now_s)) {
            a->stage = DONE;
            return hand_over(m, r, a->fd, fd);
        }
    }
    return -1;
}

void wd_meet_close(wd_meet *meet)
{
    if (!meet) return;
    for (int i = 0; i < meet->strangers; i++) close(meet->stranger[i].fd);
    for (int r = 0; meet->attempt && r < meet->rank; r++)
        if (meet->attempt[r].stage != DONE && meet->attempt[r].fd >= 0) close(meet->attempt[r].fd);
    if (meet->fd >= 0) close(meet->fd);
    wd_free(meet->met);
    wd_free(meet->attempt);
    wd_free(meet->stranger);
    wd_free(meet);
}
