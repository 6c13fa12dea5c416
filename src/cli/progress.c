/* Progress on a terminal: the last line, which is redrawn repeatedly.
 *
 * Messages may come from any thread. They erase the line, and the next progress draws it again. */
#include "cli/cli.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS = 80, BAR_MIN = 10, BAR_MAX = 40 };

static const double draw_s = 0.1; /* minimal seconds between two drawings */

static struct {
    pthread_mutex_t lock;
    bool shown;
    double drawn; /* clock */
} line = {.lock = PTHREAD_MUTEX_INITIALIZER};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the text ---- */

/* The share of the part that is done, in [0, 1]; NaN: not known. */
static double share_of(const wd_progress *p)
{
    const double by_time = p->seconds / (p->seconds + p->seconds_left);
    const double share = p->total > 0 ? (double)p->done / (double)p->total : by_time;
    return share >= 0 && share <= 1 ? share : NAN;
}

static void append_time(char *out, size_t bytes, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e8)) return;
    const long long s = (long long)(seconds + 0.5);
    if (s < 3600)
        wd_cli_append(out, bytes, "  %lld:%02lld left", s / 60, s % 60);
    else
        wd_cli_append(out, bytes, "  %lld:%02lld:%02lld left", s / 3600, s / 60 % 60, s % 60);
}

/* "step 450/1000  loss 0.0123  3.1 steps/s  3:04 left" */
static void write_figures(char *out, size_t bytes, const wd_progress *p)
{
    snprintf(out, bytes, "%s %lld", p->unit, (long long)p->done);
    if (p->total > 0) wd_cli_append(out, bytes, "/%lld", (long long)p->total);
    if (!isnan(p->loss)) wd_cli_append(out, bytes, "  loss %.4g", p->loss);
    if (!isnan(p->validation_error))
        wd_cli_append(out, bytes, "  validation %.4g", p->validation_error);
    if (p->rate >= 0.1)
        wd_cli_append(out, bytes, "  %.3g %ss/s", p->rate, p->unit);
    else if (p->rate > 0)
        wd_cli_append(out, bytes, "  %.3g s/%s", 1 / p->rate, p->unit);
    append_time(out, bytes, p->seconds_left);
}

const char *wd_cli_progress_text(char *out, size_t out_bytes, int columns, const wd_progress *p)
{
    char figures[128], bar[BAR_MAX + 16] = "";
    const double share = share_of(p);
    write_figures(figures, sizeof figures, p);
    int room = columns - 1 - (int)(strlen(p->what) + strlen(" [] 100%  ") + strlen(figures));
    if (room > BAR_MAX) room = BAR_MAX;
    if (room >= BAR_MIN && !isnan(share)) {
        const int full = (int)(share * room);
        char *to = bar + sprintf(bar, " [");
        memset(to, '#', (size_t)full);
        memset(to + full, '-', (size_t)(room - full));
        sprintf(to + room, "] %3d%%", (int)(100 * share));
    }
    if (columns < (int)out_bytes) out_bytes = (size_t)columns; /* a line, and its end */
    snprintf(out, out_bytes, "%s%s  %s", p->what, bar, figures);
    return out;
}

/* ---- the terminal ---- */

static void draw(void *context, const wd_progress *progress)
{
    char text[512];
    struct winsize size;
    (void)context;
    const double now = now_s();
    pthread_mutex_lock(&line.lock);
    if (now - line.drawn >= draw_s || progress->done == progress->total) {
        const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
        wd_cli_progress_text(text, sizeof text, known ? size.ws_col : COLUMNS, progress);
        fprintf(stderr, "\r%s\033[K", text); /* erases the rest of the line */
        fflush(stderr);
        line.shown = true;
        line.drawn = now;
    }
    pthread_mutex_unlock(&line.lock);
}

void wd_cli_progress_begin(void)
{
    const char *kind = getenv("TERM");
    if (isatty(STDERR_FILENO) && kind && strcmp(kind, "dumb")) wd_progress_to(draw, NULL);
}

void wd_cli_progress_hide(void)
{
    pthread_mutex_lock(&line.lock);
    if (line.shown) fputs("\r\033[K", stderr);
    line.shown = false;
    pthread_mutex_unlock(&line.lock);
}

void wd_cli_progress_end(void)
{
    wd_progress_to(NULL, NULL);
    wd_cli_progress_hide();
}
