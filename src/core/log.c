/* Messages: see core/log.h. */
#include "core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/text.h"

enum { MESSAGE_MAX = 1 << 15, KEPT_MAX = 14 << 10 }; /* a command to paste may be long */
enum { ONCE_MAX = 16 };

static struct {
    pthread_mutex_t lock;
    wd_log_fn *fn;
    void *context;
    wd_log_level level;
    int rank;
    bool keep;
    size_t bytes;                   /* of the kept messages */
    uint64_t once[ONCE_MAX], onces; /* hashes of messages of wd_log_once, and their number */
    char kept[KEPT_MAX], message[MESSAGE_MAX];
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

void wd_log_to(wd_log_fn *fn, void *context, wd_log_level level)
{
    pthread_mutex_lock(&sink.lock);
    sink.fn = fn;
    sink.context = context;
    sink.level = level;
    sink.onces = 0;
    pthread_mutex_unlock(&sink.lock);
}

/* Keeps a message if all of it fits. */
static void keep(const char *message)
{
    const size_t n = strlen(message) + 1;
    if (n > KEPT_MAX - sink.bytes) return;
    memcpy(sink.kept + sink.bytes, message, n);
    sink.bytes += n;
    sink.kept[sink.bytes - 1] = '\n';
}

void wd_log_keep_errors(bool on)
{
    char *line = sink.kept, *end;
    pthread_mutex_lock(&sink.lock);
    sink.keep = on;
    for (; !on && (end = memchr(line, '\n', (size_t)(sink.kept + sink.bytes - line)));
         line = end + 1) {
        *end = 0;
        if (sink.fn) sink.fn(sink.context, WD_LOG_ERROR, line);
    }
    if (!on) sink.bytes = 0;
    pthread_mutex_unlock(&sink.lock);
}

size_t wd_log_take_errors(char *out, size_t out_bytes)
{
    pthread_mutex_lock(&sink.lock);
    const size_t n = sink.bytes < out_bytes ? sink.bytes : out_bytes - 1;
    memcpy(out, sink.kept, n);
    out[n] = 0;
    sink.bytes = 0;
    pthread_mutex_unlock(&sink.lock);
    return n;
}

void wd_log_as_rank(int rank)
{
    pthread_mutex_lock(&sink.lock);
    sink.rank = rank;
    pthread_mutex_unlock(&sink.lock);
}

int wd_log_rank(void)
{
    pthread_mutex_lock(&sink.lock);
    const int rank = sink.rank;
    pthread_mutex_unlock(&sink.lock);
    return rank;
}

static bool is_heard(wd_log_level level)
{
    return sink.fn && level <= sink.level && (!sink.rank || level <= WD_LOG_WARNING);
}

/* Whether wd_log_once has logged it; from now on it has. */
static bool is_repeated(const char *message)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *c = message; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    for (uint64_t i = 0; i < sink.onces && i < ONCE_MAX; i++)
        if (sink.once[i] == hash) return true;
    sink.once[sink.onces++ % ONCE_MAX] = hash;
    return false;
}

typedef enum manner { USUAL, ONCE, ALWAYS } manner; /* always: also while errors are kept */

static void say(wd_log_level level, manner how, const char *format, va_list list)
{
    char *message = sink.message; /* under the lock */
    pthread_mutex_lock(&sink.lock);
    if (is_heard(level)) {
        const bool report =
            how == ALWAYS || (sink.keep && level == WD_LOG_ERROR); /* names its rank */
        const size_t n = sink.rank && !report
                             ? wd_append_text(message, MESSAGE_MAX, 0, "[Rank %d] ", sink.rank)
                             : 0;
        vsnprintf(message + n, MESSAGE_MAX - n, format, list);
        wd_make_terminal_safe(message);
        if (sink.keep && level == WD_LOG_ERROR && how != ALWAYS)
            keep(message);
        else if (how != ONCE || !is_repeated(message))
            sink.fn(sink.context, level, message);
    }
    pthread_mutex_unlock(&sink.lock);
}

void wd_log(wd_log_level level, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(level, USUAL, format, list);
    va_end(list);
}

void wd_log_once(wd_log_level level, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(level, ONCE, format, list);
    va_end(list);
}

void wd_log_report(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(WD_LOG_ERROR, ALWAYS, format, list);
    va_end(list);
}
