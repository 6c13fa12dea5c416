/* Rows: see metrics.h. A number is written with as many digits as its precision has (9
 * for a float, 17 for a double), so equal bits are equal text. */
#include "train/loop/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/file/record_file.h"
#include "train/loop/tensorboard.h"

enum { CHUNK_BYTES = 32 << 10, LINE_BYTES = 8 << 10 }; /* a line is shorter than either */

struct wd_metrics {
    wd_record_file rows;
    wd_tensorboard *board;
    bool left_out; /* a sheet that is too large for it */
};

/* The step of a line that wd__metrics_write wrote, or -1: every line begins with it. */
static int64_t step_of(const char *line)
{
    int64_t step = -1;
    return sscanf(line, "{\"step\": %" SCNd64 ",", &step) == 1 ? step : -1;
}

/* Adds to *keep the bytes of the chunk's first whole lines of steps up to `resume_step`; returns
 * where the rest begins. *ended is set by another line. */
static char *keep_lines(int64_t *keep, bool *ended, char *chunk, size_t bytes, int64_t resume_step)
{
    char *line = chunk, *end;
    while (!*ended && (end = memchr(line, '\n', bytes - (size_t)(line - chunk)))) {
        *end = '\0';
        const int64_t step = step_of(line);
        *ended = step < 0 || step > resume_step;
        if (!*ended) *keep += end + 1 - line;
        if (!*ended) line = end + 1;
    }
    return line;
}

/* Cuts the file behind the last whole line of a step up to `resume_step`. What a kill left of a
 * line goes, too, and a line that is longer than any of ours. What could not be read is not there
 * to be cut off. */
static wd_status cut_back(wd_record_file *rows, int64_t resume_step, wd_err *err)
{
    char chunk[CHUNK_BYTES];
    size_t held = 0;
    int64_t keep = 0;
    bool ended = false;
    while (!ended && held < CHUNK_BYTES) {
        const ssize_t n = read(rows->fd, chunk + held, CHUNK_BYTES - held);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return wd_fail(err, WD_IO, "%s: cannot be read: %s", rows->path, strerror(errno));
        if (n == 0) break;
        held += (size_t)n;
        const char *rest = keep_lines(&keep, &ended, chunk, held, resume_step);
        held -= (size_t)(rest - chunk);
        memmove(chunk, rest, held);
    }
    return wd_record_file_cut(rows, keep, err);
}

wd_status wd__metrics_open(wd_metrics **out, const char *folder, int64_t resume_step, wd_err *err)
{
    wd_metrics *metrics = NULL;
    wd_status status = WD_OK;
    char path[WD_PATH_MAX];
    WD_TRY(wd_path_join(path, folder, "metrics.jsonl", err));
    WD_TRY(wd_alloc((void **)&metrics, 1, sizeof *metrics, "metrics", err));
    metrics->rows.fd = -1;
    WD_TRY_OUT(wd_record_file_open(&metrics->rows, path, err));
    WD_TRY_OUT(cut_back(&metrics->rows, resume_step, err));
    WD_TRY_OUT(wd__tensorboard_open(&metrics->board, folder, resume_step + 1, err));
out:
    if (status == WD_OK)
        *out = metrics;
    else
        wd__metrics_close(metrics);
    return status;
}

void wd__metrics_close(wd_metrics *metrics)
{
    if (!metrics) return;
    wd_record_file_close(&metrics->rows);
    wd__tensorboard_close(metrics->board);
    wd_free(metrics);
}

static const char *number_text(char out[32], double v, int digits)
{
    if (isfinite(v))
        snprintf(out, 32, "%.*g", digits, v);
    else
        snprintf(out, 32, "null");
    return out;
}

/* Appends ", "validation_error": ..., "validation_error_by_level": [...]". */
static size_t append_validation(char out[LINE_BYTES], size_t n, const wd_validation_result *result)
{
    char error[32], sigma[32];
    n = wd_append_text(out, LINE_BYTES, n,
                       ", \"validation_error\": %s, \"validation_error_by_level\": [",
                       number_text(error, result->error, 17));
    for (int64_t i = 0; i < result->levels; i++)
        n = wd_append_text(out, LINE_BYTES, n, "%s{\"sigma\": %s, \"error\": %s}", i ? ", " : "",
                           number_text(sigma, result->sigma[i], 9),
                           number_text(error, result->by_level[i], 17));
    return wd_append_text(out, LINE_BYTES, n, "]");
}

/* Appends ", "device_memory_bytes": {"cuda:0": ...}" where there are devices. */
static size_t append_devices(char out[LINE_BYTES], size_t n, const wd_metrics_row *row)
{
    if (!row->devices) return n;
    n = wd_append_text(out, LINE_BYTES, n, ", \"device_memory_bytes\": {");
    for (int d = 0; d < row->devices; d++)
        n = wd_append_text(out, LINE_BYTES, n, "%s\"%s\": %zu", d ? ", " : "", row->device[d].name,
                           row->device[d].bytes);
    return wd_append_text(out, LINE_BYTES, n, "}");
}

static wd_status write_line(wd_metrics *metrics, const wd_metrics_row *row, wd_err *err)
{
    char line[LINE_BYTES], loss[32], norm[32], lr[32], seconds[32], rate[32];
    size_t n = wd_append_text(
        line, LINE_BYTES, 0,
        "{\"step\": %" PRId64 ", \"loss\": %s, \"grad_norm\": %s, \"lr\": %s, "
        "\"samples\": %" PRId64 ", \"targets\": %" PRId64 ", \"phase\": \"%s\"",
        row->step, number_text(loss, row->loss, 17), number_text(norm, row->grad_norm, 9),
        number_text(lr, row->lr, 17), row->samples, row->targets, row->phase);
    if (row->validation) n = append_validation(line, n, row->validation);
    n = wd_append_text(line, LINE_BYTES, n,
                       ", \"seconds\": %s, \"steps_per_s\": %s, \"memory_bytes\": %zu",
                       number_text(seconds, row->seconds, 7),
                       number_text(rate, row->steps_per_s, 4), row->memory_bytes);
    n = append_devices(line, n, row);
    n = wd_append_text(line, LINE_BYTES, n, "}\n");
    return wd_record_file_write(&metrics->rows, line, n, err);
}

static wd_status write_scalars(wd_metrics *metrics, const wd_validation_result *result, wd_err *err)
{
    char tag[48];
    WD_TRY(wd__tensorboard_scalar(metrics->board, "validation/error", result->error, result->step,
                                  err));
    for (int64_t i = 0; i < result->levels; i++) {
        snprintf(tag, sizeof tag, "validation/sigma_%.4f", result->sigma[i]);
        WD_TRY(wd__tensorboard_scalar(metrics->board, tag, result->by_level[i], result->step, err));
    }
    return WD_OK;
}

wd_status wd__metrics_write(wd_metrics *metrics, const wd_metrics_row *row, wd_err *err)
{
    const struct {
        const char *tag;
        double value;
    } scalars[] = {{"train/loss", row->loss},
                   {"train/grad_norm", row->grad_norm},
                   {"train/lr", row->lr},
                   {"train/steps_per_s", row->steps_per_s}};
    WD_TRY(write_line(metrics, row, err));
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        WD_TRY(wd__tensorboard_scalar(metrics->board, scalars[i].tag, scalars[i].value, row->step,
                                      err));
    return row->validation ? write_scalars(metrics, row->validation, err) : WD_OK;
}

wd_status wd__metrics_write_validation(wd_metrics *metrics, const wd_validation_result *result,
                                       wd_err *err)
{
    char line[LINE_BYTES];
    size_t n = wd_append_text(line, LINE_BYTES, 0, "{\"step\": %" PRId64, result->step);
    n = append_validation(line, n, result);
    n = wd_append_text(line, LINE_BYTES, n, "}\n");
    WD_TRY(wd_record_file_write(&metrics->rows, line, n, err));
    return write_scalars(metrics, result, err);
}

wd_status wd__metrics_sheet(wd_metrics *metrics, const char *path, int64_t step, wd_err *err)
{
    bool left_out;
    WD_TRY(wd__tensorboard_picture(&left_out, metrics->board, "samples/sheet", path, step, err));
    if (left_out && !metrics->left_out)
        wd_log(WD_LOG_INFO, "%s: too large for TensorBoard's event file, which lacks this sheet",
               path);
    metrics->left_out |= left_out;
    return WD_OK;
}
