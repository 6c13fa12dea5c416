/* See dist/watch_meet.h.
 *
 * The lower rank listens. The three words of dist/watch_word.h make both sides sure of the other;
 * who listens then takes the connection for one, and who has called does so when it hears something
 * on it: so neither has one that the other has given up. What a rank's address is seen from
 * elsewhere is tried out: all that it has, one after the other, again and again.
 *
 * Anybody may connect meanwhile, as often as they like. So no more of them are taken than there are
 * places, what they say is heard first, and whoever goes to make room has had a turn to say it. */
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

static const double connect_s = 1, answer_s = 3, pause_s = 0.05;

enum { STRANGERS_MORE = 128 }; /* room for connections beyond those of the ranks */
enum { ROUNDS_MAX = 16 };      /* of hearing and taking strangers, in a turn */

/* A word that is on its way here. */
typedef struct incoming {
    wd_watch_word word;
    size_t bytes;
} incoming;

typedef enum stage { IDLE, CONNECTING, CALLED, CONFIRMED, DONE } stage;

/* The way to a lower rank. */
typedef struct attempt {
    stage stage;
    int fd, next; /* which address is tried next; -1: the loopback */
    double since_s;
    wd_watch_talk talk;
    incoming in;
} attempt;

/* Somebody who has connected. */
typedef struct stranger {
    int fd, rank; /* -1: has not called yet */
    double since_s;
    wd_watch_talk talk;
    incoming in;
} stranger;

struct wd_meet {
    int rank, ranks, fd;
    bool one_machine;
    const wd_watch_address *all;
    bool *met;        /* [ranks] */
    attempt *attempt; /* [rank] */
    int strangers;
    stranger *stranger; /* [ranks + STRANGERS_MORE] */
};

/* ---- listening ---- */

static bool bind_to(wd_meet *m, const void *address, socklen_t bytes)
{
    const int family = ((const struct sockaddr *)address)->sa_family, off = 0;
    m->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->fd < 0) return false;
    if (family == AF_INET6) setsockopt(m->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (!bind(m->fd, address, bytes)) return true;
    close(m->fd);
    m->fd = -1;
    return false;
}

static wd_status listen_at(wd_meet *m, wd_watch_address *mine, wd_err *err)
{
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    const struct sockaddr_in own = {.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    const bool is_bound = m->one_machine
                              ? bind_to(m, &own, sizeof own)
                              : bind_to(m, &six, sizeof six) || bind_to(m, &four, sizeof four);
    if (!is_bound)
        return wd_fail(err, WD_IO, "the watch of rank %d gets no port: %s", m->rank,
                       strerror(errno));
    if (listen(m->fd, SOMAXCONN) || getsockname(m->fd, (struct sockaddr *)&bound, &bytes))
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

wd_status wd_meet_listen(wd_meet **out, int rank, int ranks, bool one_machine,
                         wd_watch_address *mine, wd_err *err)
{
    wd_status status;
    wd_meet *m = NULL;
    *mine = (wd_watch_address){0};
    WD_TRY(wd_alloc((void **)&m, 1, sizeof *m, "the watch's meeting", err));
    *m = (wd_meet){.rank = rank, .ranks = ranks, .fd = -1, .one_machine = one_machine};
    WD_TRY_OUT(wd_alloc((void **)&m->met, (size_t)ranks, sizeof *m->met, "the watch", err));
    WD_TRY_OUT(wd_alloc((void **)&m->attempt, (size_t)ranks, sizeof *m->attempt, "the watch", err));
    WD_TRY_OUT(wd_alloc((void **)&m->stranger, (size_t)(ranks + STRANGERS_MORE),
                        sizeof *m->stranger, "the watch", err));
    for (int r = 0; r < ranks; r++) m->attempt[r] = (attempt){.fd = -1, .next = -1};
    WD_TRY_OUT(listen_at(m, mine, err));
    if (getrandom(mine->secret, sizeof mine->secret, 0) != (ssize_t)sizeof mine->secret)
        WD_TRY_OUT(wd_fail(err, WD_IO, "no random bytes: %s", strerror(errno)));
    if (gethostname(mine->host, sizeof mine->host - 1)) *mine->host = 0;
    if (!one_machine) find_addresses(mine);
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

/* ---- words ---- */

static const unsigned char *secret_of(const wd_meet *m)
{
    return m->all[0].secret;
}

/* Small enough for every socket's buffer; false: the other side is gone. */
static bool say(int fd, const wd_watch_word *word)
{
    return send(fd, word, sizeof *word, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *word;
}

typedef enum heard { NOTHING_YET, WORD, GONE } heard;

static heard hear_word(int fd, incoming *in)
{
    const ssize_t n =
        recv(fd, (char *)&in->word + in->bytes, sizeof in->word - in->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return NOTHING_YET;
    if (n <= 0) return GONE;
    in->bytes += (size_t)n;
    if (in->bytes < sizeof in->word) return NOTHING_YET;
    in->bytes = 0;
    return WORD;
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
    const bool is_here = m->one_machine || !strcmp(there->machine, m->all[m->rank].machine);
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

static bool call_rank(const wd_meet *m, int rank, attempt *a)
{
    wd_watch_word call;
    return wd_watch_call(&call, &a->talk, m->rank, rank) && say(a->fd, &call);
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
        !call_rank(m, rank, a)) {
        give_up(a, now_s);
        return;
    }
    a->stage = CALLED;
    a->since_s = now_s;
}

/* Whether what has answered is the rank, and is told that this is one. */
static bool confirm(const wd_meet *m, attempt *a)
{
    wd_watch_word end;
    if (!wd_watch_is_answer(&a->in.word, &a->talk, secret_of(m))) return false;
    wd_watch_confirm(&end, &a->talk, secret_of(m));
    return say(a->fd, &end);
}

static void hear_answer(const wd_meet *m, attempt *a, double now_s)
{
    const heard h = hear_word(a->fd, &a->in);
    if (h == WORD && confirm(m, a))
        a->stage = CONFIRMED;
    else if (h != NOTHING_YET || now_s - a->since_s > answer_s)
        give_up(a, now_s);
}

/* Whether the rank has begun to give signs of life, which are left where they are. */
static bool is_heard(attempt *a, double now_s)
{
    char byte;
    const ssize_t n = recv(a->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        give_up(a, now_s);
    return n > 0;
}

/* Whether the rank is connected. */
static bool step_attempt(const wd_meet *m, int rank, attempt *a, double now_s)
{
    if (a->stage == IDLE) begin_attempt(m, rank, a, now_s);
    if (a->stage == CONNECTING) see_connected(m, rank, a, now_s);
    if (a->stage == CALLED) hear_answer(m, a, now_s);
    return a->stage == CONFIRMED && is_heard(a, now_s);
}

/* ---- from the higher ones, and whoever else ---- */

static void turn_away(wd_meet *m, int i)
{
    close(m->stranger[i].fd);
    m->stranger[i] = m->stranger[--m->strangers];
}

/* Who goes to make room: of those who were here in an earlier turn the oldest, and those who have
 * called only if there are no others. -1: nobody. */
static int find_to_turn_away(const wd_meet *m, double now_s)
{
    int found = -1;
    for (int i = 0; i < m->strangers; i++) {
        const stranger *s = &m->stranger[i], *other = &m->stranger[found < 0 ? i : found];
        if (s->since_s >= now_s) continue;
        const bool calls = s->rank >= 0, other_calls = other->rank >= 0;
        if (found < 0 || (calls == other_calls ? s->since_s < other->since_s : other_calls))
            found = i;
    }
    return found;
}

static bool make_room(wd_meet *m, double now_s)
{
    const int i = find_to_turn_away(m, now_s);
    if (i >= 0) turn_away(m, i);
    return i >= 0;
}

/* Whether somebody has come. */
static bool take_strangers(wd_meet *m, double now_s)
{
    bool some = false;
    for (;;) {
        if (m->strangers == m->ranks + STRANGERS_MORE && !make_room(m, now_s)) return some;
        const int fd = accept4(m->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && make_room(m, now_s)) continue;
        if (fd < 0) return some;
        m->stranger[m->strangers++] = (stranger){.fd = fd, .rank = -1, .since_s = now_s};
        some = true;
    }
}

/* Whether the stranger is a rank that calls, and gets its answer. */
static bool answer(const wd_meet *m, stranger *s)
{
    wd_watch_word word;
    if (!wd_watch_is_call(&s->in.word, m->rank, m->ranks) || m->met[s->in.word.from] ||
        !wd_watch_answer(&word, &s->talk, &s->in.word, secret_of(m)))
        return false;
    s->rank = s->in.word.from;
    return say(s->fd, &word);
}

/* Whether the stranger is now a rank that is connected; *gone: is nobody. */
static bool step_stranger(const wd_meet *m, stranger *s, bool *gone, double now_s)
{
    const heard h = hear_word(s->fd, &s->in);
    *gone = h == GONE || now_s - s->since_s > answer_s;
    if (h != WORD || *gone) return false;
    const bool called = s->rank >= 0;
    const bool is_rank =
        called && !m->met[s->rank] && wd_watch_is_close(&s->in.word, &s->talk, secret_of(m));
    *gone = called ? !is_rank : !answer(m, s);
    return is_rank;
}

/* A rank that is connected now; -1: none. */
static int step_strangers(wd_meet *m, int *fd, double now_s)
{
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
    return -1;
}

/* ---- all together ---- */

int wd_meet_step(wd_meet *m, int *fd, double now_s)
{
    for (int round = 0; round < ROUNDS_MAX; round++) {
        const int rank = step_strangers(m, fd, now_s);
        if (rank >= 0) return rank;
        if (!take_strangers(m, now_s)) break;
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
