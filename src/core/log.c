/* Messages: see core/log.h. */
#include "core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static struct {
    pthread_mutex_t lock;
    wd_log_fn *fn;
    void *context;
    wd_log_level level;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

void wd_log_to(wd_log_fn *fn, void *context, wd_log_level level)
{
    pthread_mutex_lock(&sink.lock);
    sink.fn = fn;
    sink.context = context;
    sink.level = level;
    pthread_mutex_unlock(&sink.lock);
}

void wd_log(wd_log_level level, const char *format, ...)
{
    pthread_mutex_lock(&sink.lock);
    if (sink.fn && level <= sink.level) {
        char message[2048];
        va_list list;
        va_start(list, format);
        vsnprintf(message, sizeof message, format, list);
        va_end(list);
        sink.fn(sink.context, level, message);
    }
    pthread_mutex_unlock(&sink.lock);
}
