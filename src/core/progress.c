/* Progress: see core/progress.h. */
#include "core/progress.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "core/clock.h"
#include "core/host.h"
#include "core/log.h"

/* Bounds of the seconds between two lines in the log, which are a sixtieth of the task's time so
 * far. */
static const double line_s_min = 1, line_s_max = 60;

static struct {
    pthread_mutex_t lock;
    wd_progress_fn *progress;
    void *progress_context;
    wd_picture_fn *picture;
    void *picture_context;
} listener = {.lock = PTHREAD_MUTEX_INITIALIZER};

void wd_progress_to(wd_progress_fn *fn, void *context)
{
    pthread_mutex_lock(&listener.lock);
    listener.progress = fn;
    listener.progress_context = context;
    pthread_mutex_unlock(&listener.lock);
}

void wd_pictures_to(wd_picture_fn *fn, void *context)
{
    pthread_mutex_lock(&listener.lock);
    listener.picture = fn;
    listener.picture_context = context;
    pthread_mutex_unlock(&listener.lock);
}

/* Calls the function of wd_progress_to; returns whether there is one. */
static bool tell(const wd_progress *progress)
{
    pthread_mutex_lock(&listener.lock);
    wd_progress_fn *fn = listener.progress;
    if (fn) fn(listener.progress_context, progress);
    pthread_mutex_unlock(&listener.lock);
    return fn != NULL;
}

void wd_picture_show(const char *path, const uint8_t *rgb, int64_t height, int64_t width)
{
    const wd_picture picture = {.path = path, .rgb = rgb, .height = height, .width = width};
    pthread_mutex_lock(&listener.lock);
    if (listener.picture) listener.picture(listener.picture_context, &picture);
    pthread_mutex_unlock(&listener.lock);
}

/* ---- lines ---- */

static const char *time_text(char out[32], double seconds)
{
    if (!(seconds >= 0) || seconds > 1e9) return "--:--";
    long long s = (long long)(seconds + 0.5);
    if (s < 3600)
        snprintf(out, 32, "%lld:%02lld", s / 60, s % 60);
    else
        snprintf(out, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return out;
}

static const char *memory_text(char out[32], size_t bytes)
{
    double mb = (double)bytes / 1e6;
    if (mb < 9999.5)
        snprintf(out, 32, "%.0f MB", mb);
    else
        snprintf(out, 32, "%.1f GB", mb / 1e3);
    return out;
}

static const char *rate_text(char out[64], const wd_progress *p)
{
    if (!(p->rate > 0))
        snprintf(out, 64, "-- %ss/s", p->unit);
    else if (p->rate < 0.1)
        snprintf(out, 64, "%.3g s/%s", 1 / p->rate, p->unit);
    else
        snprintf(out, 64, "%.3g %ss/s", p->rate, p->unit);
    return out;
}

const char *wd__progress_text(char *out, size_t out_bytes, const wd_progress *p,
                              size_t memory_bytes)
{
    char count[48], loss[32] = "", error[40] = "", rate[64], left[32], number[32];
    char memory[48] = "";
    if (p->total > 0)
        snprintf(count, sizeof count, "%*" PRId64 "/%" PRId64,
                 snprintf(NULL, 0, "%" PRId64, p->total), p->done, p->total);
    else
        snprintf(count, sizeof count, "%" PRId64, p->done);
    if (!isnan(p->loss)) snprintf(loss, sizeof loss, "  loss %.4g", p->loss);
    if (!isnan(p->validation_error))
        snprintf(error, sizeof error, "  validation %.4g", p->validation_error);
    if (memory_bytes)
        snprintf(memory, sizeof memory, "  memory %s", memory_text(number, memory_bytes));
    snprintf(out, out_bytes, "%s: %s %s%s%s  %s  ETA %s%s", p->what, p->unit, count, loss, error,
             rate_text(rate, p), time_text(left, p->seconds_left), memory);
    return out;
}

/* ---- a task ---- */

wd_progress_task wd_progress_begin(const char *what, const char *unit, int64_t done, int64_t total)
{
    const double now = wd_clock_s();
    const wd_progress_task task = {.now = {.what = what,
                                           .unit = unit,
                                           .done = done,
                                           .total = total,
                                           .rate = NAN,
                                           .seconds_left = NAN,
                                           .loss = NAN,
                                           .validation_error = NAN},
                                   .first = done,
                                   .begun = now,
                                   .said = now};
    if (!wd_log_rank()) tell(&task.now);
    return task;
}

static double seconds_left(const wd_progress_task *task)
{
    const wd_progress *p = &task->now;
    const double by_count = p->total > 0 ? (double)(p->total - p->done) / p->rate : NAN;
    const double by_time = task->seconds_max > 0 ? task->seconds_max - p->seconds : NAN;
    return fmin(by_count, by_time); /* fmin of a number and NaN is the number */
}

static bool line_is_due(const wd_progress_task *task)
{
    const double since = task->begun + task->now.seconds - task->said;
    return since >= fmin(fmax(task->now.seconds / 60, line_s_min), line_s_max);
}

void wd_progress_at(wd_progress_task *task, int64_t done)
{
    char line[256];
    wd_progress *p = &task->now;
    if (!p->what || wd_log_rank()) return;
    p->done = done;
    p->seconds = wd_clock_s() - task->begun;
    if (done > task->first && p->seconds > 0) p->rate = (double)(done - task->first) / p->seconds;
    p->seconds_left = seconds_left(task);
    if (tell(p) || !line_is_due(task)) return;
    task->said = task->begun + p->seconds;
    const size_t memory = task->sharers ? wd_host_memory_part(task->sharers) : 0;
    wd_log(WD_LOG_INFO, "%s", wd__progress_text(line, sizeof line, p, memory));
}
