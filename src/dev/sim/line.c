/* A queue's line: see dev/sim/line.h. */
#include "dev/sim/line.h"

#include "core/memory.h"

wd_status wd__sim_line_open(wd_sim_line **out, wd_err *err)
{
    wd_sim_line *line;
    WD_TRY(wd_alloc((void **)&line, 1, sizeof *line, "a queue", err));
    pthread_mutex_init(&line->lock, NULL);
    pthread_cond_init(&line->moved, NULL);
    line->holders = 1;
    *out = line;
    return WD_OK;
}

wd_sim_line *wd__sim_line_hold(wd_sim_line *line)
{
    pthread_mutex_lock(&line->lock);
    line->holders++;
    pthread_mutex_unlock(&line->lock);
    return line;
}

void wd__sim_line_drop(wd_sim_line *line)
{
    if (!line) return;
    pthread_mutex_lock(&line->lock);
    int left = --line->holders;
    pthread_mutex_unlock(&line->lock);
    if (left) return;
    pthread_cond_destroy(&line->moved);
    pthread_mutex_destroy(&line->lock);
    wd_free(line);
}

int64_t wd__sim_line_submitted(wd_sim_line *line)
{
    pthread_mutex_lock(&line->lock);
    int64_t submitted = line->submitted;
    pthread_mutex_unlock(&line->lock);
    return submitted;
}

bool wd__sim_line_is_done(wd_sim_line *line, int64_t count)
{
    pthread_mutex_lock(&line->lock);
    const bool done = line->done >= count;
    pthread_mutex_unlock(&line->lock);
    return done;
}

double wd__sim_line_wait(wd_sim_line *line, int64_t count)
{
    pthread_mutex_lock(&line->lock);
    while (line->done < count) pthread_cond_wait(&line->moved, &line->lock);
    double clock_s = line->clock_s;
    pthread_mutex_unlock(&line->lock);
    return clock_s;
}
