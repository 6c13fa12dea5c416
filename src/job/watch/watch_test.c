/* Ranks that are processes of this test: how their job ends, and what the report says. */
#include "failing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "job/watch/watch.h"

enum { RANKS = 3, RANKS_MAX = 4, WORK_MS = 1500, SLICE_MS = 50 };
static const double end_s_max = 10; /* the promised time */

typedef enum act {
    CLOSE,      /* ends in order */
    CLOSE_LATE, /* after the others */
    HANG,       /* does nothing any more */
    FAIL,       /* reports an error */
    FAIL_OF_0,  /* the same, of rank 0 */
    ABORT,
    WAIT,         /* for other ranks, without end */
    WAIT_BETWEEN, /* the same, between two steps */
    WAIT_READER,  /* the same, for what is read for its host */
    WAIT_LATER,   /* the same, and has brought fewer stages than the others */
    COMPUTE,      /* without end, and may */
    WORK,         /* for WORK_MS of the time that it is not stopped, then ends in order */
    WORK_WAITING, /* the same, and waits for other ranks meanwhile */
    DESCRIBE,     /* begins a step while its memory is described, then ends in order */
    FAIL_EARLY,   /* as soon as it is connected itself */
    NO_CONNECT    /* never connects */
} act;

typedef struct job {
    int ranks;
    act act[RANKS_MAX];
    wd_watch_options o;
    double allowed_s;
    bool one_step; /* all are at the same */
    pid_t pid[RANKS_MAX];
    int to[RANKS_MAX], from[RANKS_MAX], said; /* pipes */
    wd_watch_address address[RANKS_MAX];
    char report[1 << 16];
} job;

/* ---- a rank ---- */

static void say_into(void *pipe, wd_log_level level, const char *message)
{
    char line[4096];
    (void)level;
    const int n = snprintf(line, sizeof line, "%s\n", message);
    if (write(*(int *)pipe, line, (size_t)n) != n) _exit(99);
}

static void describe_rank(void *context, wd_watch_note *note)
{
    snprintf(note->device, sizeof note->device, "device %d", *(int *)context);
    snprintf(note->memory, sizeof note->memory, "host: %d bytes\nsim: %d bytes",
             1000 + *(int *)context, 2000 + *(int *)context);
}

/* Two threads that wait for one another: the watch's, which describes, and the rank's. */
typedef struct meeting {
    sem_t described, begun;
} meeting;

static void describe_until_begun(void *context, wd_watch_note *note)
{
    meeting *m = context;
    (void)note;
    sem_post(&m->described);
    sem_wait(&m->begun);
    sem_post(&m->begun); /* for the next time */
}

static void begin_while_described(wd_watch *watch, wd_comm *comm)
{
    meeting m;
    sem_init(&m.described, 0, 0);
    sem_init(&m.begun, 0, 0);
    wd_watch_describe(watch, describe_until_begun, &m);
    sem_wait(&m.described);
    wd_watch_step(watch, 11, INFINITY);
    wd_watch_follow(watch, comm);
    sem_post(&m.begun);
    wd_watch_describe(watch, NULL, NULL);
}

static void pass_all(int fd, void *data, size_t bytes, ssize_t (*fn)(int, void *, size_t))
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = fn(fd, (char *)data + at, bytes - at);
        if (n <= 0) _exit(98);
        at += (size_t)n;
    }
}

static ssize_t write_some(int fd, void *data, size_t bytes)
{
    return write(fd, data, bytes);
}

static _Noreturn void be_rank(job *j, int rank, int in, int out, int said)
{
    wd_err err = {0};
    wd_watch *watch;
    wd_comm comm = {.rank = rank, .ranks = j->ranks};
    wd_log_to(say_into, &said, WD_LOG_INFO);
    j->o.rank = rank;
    j->o.ranks = j->ranks;
    if (wd__watch_listen(&watch, &j->o, &j->address[rank], &err) != WD_OK) _exit(97);
    pass_all(out, &j->address[rank], sizeof *j->address, write_some);
    pass_all(in, j->address, sizeof *j->address * (size_t)j->ranks, read);
    if (j->act[rank] == NO_CONNECT)
        for (;;) pause();
    if (wd__watch_connect(watch, j->address, &err) != WD_OK) _exit(96);
    if (j->act[rank] == FAIL_EARLY) {
        wd_fail(&err, WD_BAD_FORMAT, "rank %d dislikes its file", rank);
        wd_watch_fail(watch, &err);
    }
    wd_watch_describe(watch, describe_rank, &rank);
    wd_watch_follow(watch, &comm);
    wd_watch_step(watch, j->one_step ? 10 : 10 + rank,
                  j->act[rank] == COMPUTE || j->act[rank] == WAIT_BETWEEN ? INFINITY
                                                                          : j->allowed_s);
    usleep(300 * 1000); /* every rank has said how it is */
    pass_all(out, "", 1, write_some);
    switch (j->act[rank]) {
    case CLOSE_LATE:
        sleep(2);
        break;
    case FAIL:
        wd_log(WD_LOG_ERROR, "take less of rank %d", rank);
        wd_fail(&err, WD_BAD_FORMAT, "rank %d dislikes its file", rank);
        wd_watch_fail(watch, &err);
    case FAIL_OF_0:
        wd_fail_of(&err, 0, WD_OUT_OF_MEMORY, "no memory on rank 0");
        wd_watch_fail(watch, &err);
    case ABORT:
        abort();
    case WAIT:
    case WAIT_BETWEEN:
        atomic_store(&comm.waits_since[WD_LANE_GRADIENTS], wd_clock_s());
        for (;;) pause();
    case WAIT_READER:
    case WAIT_LATER:
        atomic_store(&comm.brought, j->act[rank] == WAIT_LATER ? 5 : 7);
        atomic_store(&comm.waits_since[WD_WAIT_READER], wd_clock_s());
        for (;;) pause();
    case HANG:
    case COMPUTE:
        for (;;) pause();
    case WORK_WAITING:
        atomic_store(&comm.waits_since[WD_LANE_GRADIENTS], wd_clock_s());
        /* fall through */
    case WORK:
        for (int ms = 0; ms < WORK_MS; ms += SLICE_MS) usleep(SLICE_MS * 1000);
        wd_watch_step(watch, 20, INFINITY);
        break;
    case DESCRIBE:
        begin_while_described(watch, &comm);
        break;
    default:
        break;
    }
    wd_watch_close(watch);
    _exit(0);
}

/* ---- the job ---- */

static void start_rank(job *j, int rank, int said)
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    j->pid[rank] = fork();
    assert_true(j->pid[rank] >= 0);
    if (!j->pid[rank]) {
        close(to[1]);
        close(from[0]);
        close(j->said);
        be_rank(j, rank, to[0], from[1], said);
    }
    close(to[0]);
    close(from[1]);
    j->to[rank] = to[1];
    j->from[rank] = from[0];
}

/* Starts the job, up to where the ranks have given their addresses. */
static void start(job *j)
{
    int said[2];
    if (!j->ranks) j->ranks = RANKS;
    if (!j->allowed_s) j->allowed_s = INFINITY;
    assert_int_equal(pipe(said), 0);
    j->said = said[0];
    for (int r = 0; r < j->ranks; r++) start_rank(j, r, said[1]);
    close(said[1]);
    for (int r = 0; r < j->ranks; r++)
        pass_all(j->from[r], &j->address[r], sizeof *j->address, read);
}

/* Lets the ranks connect, and waits until they have. */
static void go(job *j)
{
    char byte;
    for (int r = 0; r < j->ranks; r++)
        pass_all(j->to[r], j->address, sizeof *j->address * (size_t)j->ranks, write_some);
    for (int r = 0; r < j->ranks; r++)
        if (j->act[r] != NO_CONNECT) assert_true(read(j->from[r], &byte, 1) >= 0);
}

static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Waits for the end, at most for the promised time; `code`: [ranks], their exit codes. */
static void see_end(job *j, int *code)
{
    const double begun = wd_clock_s();
    for (int left = j->ranks; left;) {
        left = 0;
        for (int r = 0; r < j->ranks; r++) {
            int status;
            if (!j->pid[r]) continue;
            const pid_t pid = waitpid(j->pid[r], &status, WNOHANG);
            assert_true(pid >= 0);
            left += !pid;
            if (!pid) continue;
            code[r] = code_of(status);
            j->pid[r] = 0;
        }
        if (left && wd_clock_s() - begun > end_s_max) {
            for (int r = 0; r < j->ranks; r++)
                if (j->pid[r]) kill(j->pid[r], SIGKILL);
            fail_msg("%d ranks live after %g s", left, end_s_max);
        }
        usleep(5000);
    }
    size_t n = 0;
    ssize_t some;
    while ((some = read(j->said, j->report + n, sizeof j->report - 1 - n)) > 0) n += (size_t)some;
    j->report[n] = 0;
    close(j->said);
    for (int r = 0; r < j->ranks; r++) {
        close(j->to[r]);
        close(j->from[r]);
    }
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

static void assert_report(const job *j, int rank, const char *text)
{
    char begin[128], *line;
    if (count(j->report, ", host ") != 1) fail_msg("not one report: %s", j->report);
    snprintf(begin, sizeof begin, "[Rank %d, host %s, device ", rank, j->address[rank].host);
    line = strstr(j->report, begin);
    if (!line || !strstr(line, text)) fail_msg("no \"%s\" and \"%s\": %s", begin, text, j->report);
}

static void assert_codes(const int *code, int zero, int one, int two)
{
    const int wanted[RANKS] = {zero, one, two};
    for (int r = 0; r < RANKS; r++)
        if (code[r] != wanted[r])
            fail_msg("rank %d ended with %d and not %d", r, code[r], wanted[r]);
}

/* ---- the tests ---- */

static void ranks_end_in_order(void **state)
{
    (void)state;
    int code[RANKS];
    job j = {.act = {CLOSE, CLOSE_LATE, CLOSE}, .o = {.beat_s = 0.1, .silent_s = 1.5}};
    start(&j);
    go(&j);
    see_end(&j, code);
    assert_codes(code, 0, 0, 0);
    assert_string_equal(j.report, "");
}

/* Seconds since a rank has said what memory it has, which is in the report. */
static double age_of(const job *j, int rank)
{
    char host[64], sim[64];
    double age[2];
    snprintf(host, sizeof host, "[Rank %d] host: %d bytes (", rank, 1000 + rank);
    snprintf(sim, sizeof sim, "[Rank %d] sim: %d bytes (", rank, 2000 + rank);
    const char *a = strstr(j->report, host), *b = strstr(j->report, sim);
    if (!a || !b || a > b) fail_msg("no memory of rank %d: %s", rank, j->report);
    if (sscanf(a + strlen(host), "%lf s ago)", &age[0]) != 1 ||
        sscanf(b + strlen(sim), "%lf s ago)", &age[1]) != 1)
        fail_msg("of when is the memory of rank %d? %s", rank, j->report);
    assert_true(age[0] >= 0 && age[1] >= age[0]);
    return age[0];
}

static void lose(int rank, int signal, double silent_s, const char *text)
{
    int code[RANKS];
    job j = {.act = {HANG, HANG, HANG}, .o = {.silent_s = silent_s}};
    int wanted[RANKS] = {WD_RANK_LOST, WD_RANK_LOST, WD_RANK_LOST};
    start(&j);
    go(&j);
    kill(j.pid[rank], signal);
    see_end(&j, code);
    wanted[rank] = 128 + SIGKILL;
    assert_codes(code, wanted[0], wanted[1], wanted[2]);
    assert_report(&j, rank, text);
    for (int r = 0; r < RANKS; r++) {
        const double age = age_of(&j, r); /* a silent rank's is no younger than its silence */
        if (r == rank && signal == SIGSTOP) assert_true(age > silent_s - 0.1);
    }
}

static void killed_ranks_end_all(void **state)
{
    (void)state;
    lose(2, SIGKILL, 0, "device 2] its process is gone");
    lose(0, SIGKILL, 0, "device 0] its process is gone");
}

static void stopped_ranks_end_all(void **state)
{
    (void)state;
    lose(1, SIGSTOP, 1.5, "device 1] no sign of life");
    lose(0, SIGSTOP, 0, "device 0] no sign of life");
}

/* Even for longer than a rank may be silent, if all are stopped. */
static void stopped_and_continued_ranks_go_on(void **state)
{
    (void)state;
    int code[RANKS];
    job j = {.act = {CLOSE_LATE, CLOSE_LATE, CLOSE_LATE}, .o = {.beat_s = 0.1, .silent_s = 1.5}};
    start(&j);
    go(&j);
    kill(j.pid[1], SIGSTOP);
    usleep(300 * 1000);
    kill(j.pid[1], SIGCONT);
    for (int r = 0; r < RANKS; r++) kill(j.pid[r], SIGSTOP);
    sleep(3);
    for (int r = 0; r < RANKS; r++) kill(j.pid[r], SIGCONT);
    see_end(&j, code);
    assert_codes(code, 0, 0, 0);
    assert_string_equal(j.report, "");
}

/* The time for which a job was stopped as a whole counts neither as work nor as waiting. The job is
 * stopped for longer than a step may take. */
static void paused_ranks_have_not_used_the_time(void **state)
{
    (void)state;
    static const act acts[] = {WORK, WORK_WAITING};
    for (int i = 0; i < 2; i++) {
        int code[RANKS];
        job j = {.act = {acts[i], acts[i], acts[i]}, .one_step = true, .allowed_s = 4};
        start(&j);
        go(&j);
        for (int r = 0; r < RANKS; r++) kill(j.pid[r], SIGSTOP);
        sleep(5);
        for (int r = 0; r < RANKS; r++) kill(j.pid[r], SIGCONT);
        see_end(&j, code);
        assert_string_equal(j.report, "");
        assert_codes(code, 0, 0, 0);
    }
}

/* A step begins at once, however long the description takes. */
static void steps_begin_while_memory_is_described(void **state)
{
    (void)state;
    int code[RANKS];
    job j = {.act = {DESCRIBE, DESCRIBE, DESCRIBE}};
    start(&j);
    go(&j);
    see_end(&j, code);
    assert_codes(code, 0, 0, 0);
    assert_string_equal(j.report, "");
}

static void errors_end_all_with_their_code(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        int code[RANKS];
        char text[64];
        job j = {.act = {HANG, HANG, HANG}};
        j.act[rank] = FAIL;
        start(&j);
        go(&j);
        see_end(&j, code);
        assert_codes(code, WD_BAD_FORMAT, WD_BAD_FORMAT, WD_BAD_FORMAT);
        snprintf(text, sizeof text, "rank %d dislikes its file", rank);
        assert_report(&j, rank, text);
        snprintf(text, sizeof text, "take less of rank %d\n", rank);
        assert_int_equal(count(j.report, text), 1);
    }
}

static void errors_of_all_are_one_report(void **state)
{
    (void)state;
    int code[RANKS];
    job j = {.act = {FAIL, FAIL, FAIL}};
    start(&j);
    go(&j);
    see_end(&j, code);
    assert_codes(code, WD_BAD_FORMAT, WD_BAD_FORMAT, WD_BAD_FORMAT);
    assert_int_equal(count(j.report, "dislikes its file"), 1);
    assert_int_equal(count(j.report, "take less"), 1);
}

/* An error that all ranks know of may be reported by any of them first. */
static void an_error_is_reported_for_its_rank(void **state)
{
    (void)state;
    int code[RANKS];
    job j = {.act = {HANG, HANG, FAIL_OF_0}};
    start(&j);
    go(&j);
    see_end(&j, code);
    assert_codes(code, WD_OUT_OF_MEMORY, WD_OUT_OF_MEMORY, WD_OUT_OF_MEMORY);
    assert_report(&j, 0, "no memory on rank 0");
}

/* A rank may be connected to the one that fails, and not yet to the one that reports. */
static void errors_while_ranks_connect_are_one_report(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        int code[RANKS];
        job j = {.act = {i % 2 ? HANG : FAIL_EARLY, HANG, FAIL_EARLY}};
        start(&j);
        go(&j);
        see_end(&j, code);
        assert_codes(code, WD_BAD_FORMAT, WD_BAD_FORMAT, WD_BAD_FORMAT);
        assert_int_equal(count(j.report, "dislikes its file"), 1);
    }
}

/* A rank that has finished waits for the others. */
static void failures_after_the_first_goodbye_are_reported(void **state)
{
    (void)state;
    int code[RANKS];
    job j = {.act = {CLOSE, HANG, CLOSE}};
    start(&j);
    go(&j);
    usleep(300 * 1000);
    kill(j.pid[1], SIGKILL);
    see_end(&j, code);
    assert_codes(code, WD_RANK_LOST, 128 + SIGKILL, WD_RANK_LOST);
    assert_report(&j, 1, "its process is gone");
}

static void signals_are_reported(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        int code[RANKS];
        job j = {.act = {HANG, HANG, HANG}};
        j.act[rank] = ABORT;
        start(&j);
        go(&j);
        see_end(&j, code);
        assert_codes(code, 128 + SIGABRT, 128 + SIGABRT, 128 + SIGABRT);
        assert_report(&j, rank, "ended by signal 6 (Aborted)");
    }
}

static void a_step_that_hangs_is_found_by_its_limit(void **state)
{
    (void)state;
    int code[RANKS];
    job hangs = {.act = {WAIT_BETWEEN, HANG, WAIT}, .allowed_s = 1};
    start(&hangs);
    go(&hangs);
    see_end(&hangs, code);
    assert_codes(code, WD_RANK_LOST, WD_RANK_LOST, WD_RANK_LOST);
    assert_report(&hangs, 1, "step 11 has taken");
    assert_non_null(strstr(hangs.report, "rank 2, at step 12, has waited"));
    job all_wait = {.act = {WAIT, WAIT, WAIT}, .allowed_s = 1};
    start(&all_wait);
    go(&all_wait);
    see_end(&all_wait, code);
    assert_report(&all_wait, 0, "step 10 has taken");
}

/* A rank that computes, or else the one that has brought the fewest stages, holds up those that
 * wait for the reader. */
static void a_rank_that_waits_for_the_reader_is_not_named(void **state)
{
    (void)state;
    static const act acts[][RANKS] = {{WAIT_READER, HANG, WAIT_READER},
                                      {WAIT_READER, WAIT_READER, WAIT_LATER}};
    for (int i = 0; i < 2; i++) {
        int code[RANKS];
        job j = {.one_step = true, .allowed_s = 1};
        memcpy(j.act, acts[i], sizeof acts[i]);
        start(&j);
        go(&j);
        see_end(&j, code);
        assert_report(&j, 1 + i, "step 10 has taken");
        assert_non_null(strstr(j.report, "rank 0, at step 10, has waited"));
    }
}

/* A rank that is silent is named for that, whatever the others wait for. */
static void a_stopped_rank_is_not_late(void **state)
{
    (void)state;
    int code[RANKS];
    job j = {.act = {HANG, WAIT, WAIT}, .allowed_s = 2.5, .o = {.silent_s = 4}};
    start(&j);
    go(&j);
    kill(j.pid[2], SIGSTOP);
    see_end(&j, code);
    assert_report(&j, 2, "no sign of life");
}

static void a_step_without_limit_is_not_late(void **state)
{
    (void)state;
    int code[RANKS];
    job j = {.act = {COMPUTE, WAIT, WAIT}, .allowed_s = 0.5};
    start(&j);
    go(&j);
    sleep(2);
    assert_int_equal(waitpid(j.pid[1], NULL, WNOHANG), 0);
    for (int r = 0; r < RANKS; r++) kill(j.pid[r], SIGKILL);
    see_end(&j, code);
    assert_null(strstr(j.report, "has taken"));
}

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Some say nothing, and others send bytes that no rank sends. */
static void other_programs_are_rejected(void **state)
{
    (void)state;
    enum { STRANGERS = 40 };
    int code[RANKS], fd[STRANGERS];
    char noise[1000];
    job j = {.act = {CLOSE, CLOSE, CLOSE}};
    memset(noise, 'x', sizeof noise);
    start(&j);
    for (int i = 0; i < STRANGERS; i++) {
        fd[i] = connect_to(j.address[i % RANKS].port);
        if (i % 2) send(fd[i], i % 4 == 1 ? "wd-rank" : noise, i % 4 == 1 ? 8 : 1000, MSG_NOSIGNAL);
    }
    go(&j);
    see_end(&j, code);
    for (int i = 0; i < STRANGERS; i++) close(fd[i]);
    assert_codes(code, 0, 0, 0);
    assert_string_equal(j.report, "");
}

/* A rank of one machine listens where only processes of that machine can connect. */
static void one_machine_listens_to_itself(void **state)
{
    (void)state;
    static const char *const elsewhere = "127.0.0.2"; /* as good as any that is not 127.0.0.1 */
    for (int alone = 0; alone < 2; alone++) {
        int code[RANKS];
        job j = {.act = {CLOSE, CLOSE, CLOSE}, .o = {.one_machine = alone}};
        start(&j);
        for (int r = 0; r < RANKS; r++) {
            struct sockaddr_in to = {.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)j.address[r].port)};
            inet_pton(AF_INET, elsewhere, &to.sin_addr);
            const int fd = socket(AF_INET, SOCK_STREAM, 0);
            assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), alone ? -1 : 0);
            close(fd);
        }
        go(&j);
        see_end(&j, code);
        assert_codes(code, 0, 0, 0);
    }
}

/* A program that listens in place of a rank receives the call, and no proof. */
static void an_impostor_learns_nothing(void **state)
{
    (void)state;
    int code[RANKS];
    char heard[4096];
    job j = {.act = {NO_CONNECT, HANG, HANG}, .o = {.open_s = 2}};
    start(&j);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    j.address[0].port = ntohs(at.sin_port);
    for (int r = 0; r < RANKS; r++)
        pass_all(j.to[r], j.address, sizeof *j.address * RANKS, write_some);
    const int caller = accept(fd, NULL, NULL);
    assert_true(caller >= 0);
    wd_handshake_message answer = {.from = 0};
    memcpy(answer.greeting, "wd-rank", sizeof answer.greeting);
    ssize_t n = recv(caller, heard, sizeof(wd_handshake_message), MSG_WAITALL);
    assert_int_equal(n, sizeof(wd_handshake_message));
    answer.to = ((const wd_handshake_message *)heard)->from;
    assert_int_equal(send(caller, &answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
    n += recv(caller, heard + n, sizeof heard - (size_t)n, 0);
    assert_int_equal(n, sizeof(wd_handshake_message)); /* it has hung up */
    assert_null(memmem(heard, (size_t)n, j.address[0].secret, WD_SECRET_BYTES / 2));
    close(caller);
    close(fd);
    kill(j.pid[0], SIGKILL);
    see_end(&j, code);
    assert_int_equal(code[1], WD_RANK_LOST);
}

/* Where another host looks like this one, a process id of it may be that of another process here.
 */
static void processes_of_other_hosts_are_not_killed(void **state)
{
    (void)state;
    int code[RANKS], status;
    job j = {.act = {HANG, HANG, HANG}, .o = {.silent_s = 1.5}};
    const pid_t innocent = fork();
    assert_true(innocent >= 0);
    if (!innocent)
        for (;;) pause();
    start(&j);
    j.address[1].process.pid = innocent;
    go(&j);
    kill(j.pid[1], SIGSTOP);
    usleep(100 * 1000);
    assert_int_equal(waitpid(j.pid[0], &status, 0), j.pid[0]);
    assert_int_equal(code_of(status), WD_RANK_LOST);
    j.pid[0] = 0;
    assert_int_equal(waitpid(innocent, NULL, WNOHANG), 0);
    kill(innocent, SIGKILL);
    assert_int_equal(waitpid(innocent, NULL, 0), innocent);
    kill(j.pid[1], SIGKILL); /* its own host would */
    see_end(&j, code);
}

static void a_rank_that_does_not_connect_is_named(void **state)
{
    (void)state;
    int code[RANKS];
    job j = {.act = {HANG, HANG, NO_CONNECT}, .o = {.open_s = 1}};
    start(&j);
    for (int r = 0; r < RANKS; r++)
        pass_all(j.to[r], j.address, sizeof *j.address * RANKS, write_some);
    usleep(1500 * 1000);
    kill(j.pid[2], SIGKILL);
    see_end(&j, code);
    assert_codes(code, WD_RANK_LOST, WD_RANK_LOST, 128 + SIGKILL);
    assert_report(&j, 2, "no connection between its watch and that of rank");
}

static wd_status open_and_close(void *context, wd_err *err)
{
    (void)context;
    const wd_watch_options o = {.ranks = 2};
    wd_watch_address mine;
    wd_watch *watch;
    WD_TRY(wd__watch_listen(&watch, &o, &mine, err));
    wd_watch_close(watch);
    return WD_OK;
}

static void opening_fails_cleanly(void **state)
{
    (void)state;
    wd_test_failing_allocations(open_and_close, NULL, NULL, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_end_in_order),
        cmocka_unit_test(killed_ranks_end_all),
        cmocka_unit_test(stopped_ranks_end_all),
        cmocka_unit_test(stopped_and_continued_ranks_go_on),
        cmocka_unit_test(paused_ranks_have_not_used_the_time),
        cmocka_unit_test(steps_begin_while_memory_is_described),
        cmocka_unit_test(errors_end_all_with_their_code),
        cmocka_unit_test(errors_of_all_are_one_report),
        cmocka_unit_test(an_error_is_reported_for_its_rank),
        cmocka_unit_test(errors_while_ranks_connect_are_one_report),
        cmocka_unit_test(failures_after_the_first_goodbye_are_reported),
        cmocka_unit_test(signals_are_reported),
        cmocka_unit_test(a_step_that_hangs_is_found_by_its_limit),
        cmocka_unit_test(a_rank_that_waits_for_the_reader_is_not_named),
        cmocka_unit_test(a_stopped_rank_is_not_late),
        cmocka_unit_test(a_step_without_limit_is_not_late),
        cmocka_unit_test(other_programs_are_rejected),
        cmocka_unit_test(one_machine_listens_to_itself),
        cmocka_unit_test(an_impostor_learns_nothing),
        cmocka_unit_test(processes_of_other_hosts_are_not_killed),
        cmocka_unit_test(a_rank_that_does_not_connect_is_named),
        cmocka_unit_test(opening_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
