/* Reading metrics.jsonl: see report/metrics_file.h. */
#include "report/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "io/json/json.h"

enum { CHUNK_BYTES = 64 << 10 }; /* a longer line is none of a run's */

static const double STEP_MAX = 0x1p53; /* a double has every integer up to it */

/* ---- a line ---- */

/* A figure of a line; NaN: the line has none. */
typedef struct row {
    double step, samples, targets, seconds;
    double figure[WD_FIGURE_COUNT];
    bool is_dropped;       /* a step whose loss or norm of gradients was not finite */
    const json_t *levels;  /* NULL: none */
    const json_t *devices; /* NULL: none */
} row;

static const char *const figure_key[WD_FIGURE_COUNT] = {[WD_FIGURE_LOSS] = "loss",
                                                        [WD_FIGURE_GRAD_NORM] = "grad_norm",
                                                        [WD_FIGURE_LR] = "lr",
                                                        [WD_FIGURE_STEPS_PER_S] = "steps_per_s",
                                                        [WD_FIGURE_MEMORY] = "memory_bytes",
                                                        [WD_FIGURE_VALIDATION] =
                                                            "validation_error"};

/* *out stays NaN where the key is absent or null. False: it is no number. */
static bool read_number(double *out, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    *out = NAN;
    if (!value || json_is_null(value)) return true;
    if (!json_is_number(value)) return false;
    *out = json_number_value(value);
    return isfinite(*out);
}

static bool read_levels(row *r, const json_t *object)
{
    double sigma, error;
    size_t i;
    json_t *item;
    r->levels = json_object_get(object, "validation_error_by_level");
    if (json_is_null(r->levels)) r->levels = NULL;
    if (!r->levels) return true;
    if (!json_is_array(r->levels)) return false;
    json_array_foreach(r->levels, i, item)
    {
        if (!json_is_object(item) || !read_number(&sigma, item, "sigma") || isnan(sigma) ||
            !read_number(&error, item, "error"))
            return false;
    }
    return true;
}

static bool read_devices(row *r, const json_t *object)
{
    const char *name;
    double bytes;
    json_t *item;
    r->devices = json_object_get(object, "device_memory_bytes");
    if (json_is_null(r->devices)) r->devices = NULL;
    if (!r->devices) return true;
    if (!json_is_object(r->devices) || json_object_size(r->devices) > WD_REPORT_DEVICES_MAX)
        return false;
    json_object_foreach((json_t *)r->devices, name, item)
    {
        if (!*name || strlen(name) >= WD_REPORT_DEVICE_NAME) return false;
        if (!read_number(&bytes, r->devices, name) || !(bytes >= 0)) return false;
    }
    return true;
}

/* Reads all of a line before any of it is used, so that a wrong line changes nothing. */
static bool read_row(row *r, const json_t *object)
{
    if (!json_is_object(object)) return false;
    if (!read_number(&r->step, object, "step")) return false;
    if (!(r->step >= 0 && r->step <= STEP_MAX) || r->step != floor(r->step)) return false;
    if (!read_number(&r->samples, object, "samples")) return false;
    if (!read_number(&r->targets, object, "targets")) return false;
    if (!read_number(&r->seconds, object, "seconds")) return false;
    for (int i = 0; i < WD_FIGURE_COUNT; i++)
        if (!read_number(&r->figure[i], object, figure_key[i])) return false;
    r->is_dropped = json_is_null(json_object_get(object, figure_key[WD_FIGURE_LOSS])) ||
                    json_is_null(json_object_get(object, figure_key[WD_FIGURE_GRAD_NORM]));
    return read_levels(r, object) && read_devices(r, object);
}

/* The curve of a noise level; NULL: there are too many. */
static wd_status find_level(wd_curve **out, wd_metrics_file *f, double sigma, wd_err *err)
{
    *out = NULL;
    for (int i = 0; i < f->levels; i++)
        if (f->level[i]->sigma == sigma) *out = &f->level[i]->curve;
    if (*out) return WD_OK;
    f->more_levels |= f->levels == WD_LEVELS_MAX;
    if (f->levels == WD_LEVELS_MAX) return WD_OK;
    WD_TRY(wd_alloc((void **)&f->level[f->levels], 1, sizeof **f->level, "a curve", err));
    f->level[f->levels]->sigma = sigma;
    *out = &f->level[f->levels++]->curve;
    return WD_OK;
}

static wd_status add_levels(wd_metrics_file *f, const row *r, wd_err *err)
{
    double sigma, error;
    wd_curve *curve;
    size_t i;
    json_t *item;
    json_array_foreach(r->levels, i, item)
    {
        read_number(&sigma, item, "sigma");
        read_number(&error, item, "error");
        if (isnan(error)) continue;
        WD_TRY(find_level(&curve, f, sigma, err));
        if (curve) wd__curve_add(curve, r->step, error);
    }
    return WD_OK;
}

static void keep_devices(wd_metrics_file *f, const row *r)
{
    const char *name;
    json_t *item;
    if (!r->devices && isnan(r->figure[WD_FIGURE_MEMORY])) return; /* a validation's own line */
    f->devices = 0;
    json_object_foreach((json_t *)r->devices, name, item)
    {
        wd_device_memory *d = &f->device[f->devices++];
        snprintf(d->name, sizeof d->name, "%s", name);
        d->bytes = json_number_value(item);
    }
}

static wd_status add_row(wd_metrics_file *f, const row *r, wd_err *err)
{
    const double validation = r->figure[WD_FIGURE_VALIDATION];
    f->rows++;
    f->dropped += r->is_dropped;
    f->step = r->step;
    if (!isnan(r->samples)) f->samples = r->samples;
    if (!isnan(r->targets)) f->targets = r->targets;
    if (!isnan(r->seconds)) f->seconds = r->seconds;
    for (int i = 0; i < WD_FIGURE_COUNT; i++)
        if (!isnan(r->figure[i])) wd__curve_add(&f->figure[i], r->step, r->figure[i]);
    if (!isnan(r->figure[WD_FIGURE_LOSS]))
        f->loss[f->losses++ % WD_LAST_LOSSES] = r->figure[WD_FIGURE_LOSS];
    if (!isnan(validation) && !(validation >= f->best_validation)) {
        f->best_validation = validation;
        f->best_step = r->step;
    }
    keep_devices(f, r);
    return add_levels(f, r, err);
}

static wd_status add_line(wd_metrics_file *f, const char *line, size_t bytes, wd_err *err)
{
    json_t *object = NULL;
    row r;
    if (strspn(line, " \t\r") >= bytes) return WD_OK; /* an empty line */
    wd_status status = wd_json_parse(&object, line, bytes, "a line of metrics.jsonl", err);
    if (status == WD_BAD_FORMAT) {
        f->wrong++;
        return WD_OK;
    }
    if (status != WD_OK) return status;
    if (read_row(&r, object) && r.step >= f->step)
        status = add_row(f, &r, err);
    else
        f->wrong++;
    json_decref(object);
    return status;
}

/* ---- the file ---- */

wd_status wd__metrics_file_open(wd_metrics_file **out, wd_err *err)
{
    WD_TRY(wd_alloc((void **)out, 1, sizeof **out, "curves of a run", err));
    (*out)->best_validation = NAN;
    return WD_OK;
}

static void forget(wd_metrics_file *f)
{
    for (int i = 0; i < f->levels; i++) wd_free(f->level[i]);
    *f = (wd_metrics_file){.best_validation = NAN};
}

void wd__metrics_file_close(wd_metrics_file *file)
{
    if (file) forget(file);
    wd_free(file);
}

/* Takes the whole lines of the chunk. Returns how many bytes they have. */
static wd_status take_lines(size_t *taken, wd_metrics_file *f, char *chunk, size_t bytes,
                            wd_err *err)
{
    char *line = chunk, *end;
    while ((end = memchr(line, '\n', bytes - (size_t)(line - chunk)))) {
        *end = '\0';
        const bool is_rest = f->skips;
        f->skips = false;
        if (!is_rest) WD_TRY(add_line(f, line, (size_t)(end - line), err));
        line = end + 1;
    }
    *taken = (size_t)(line - chunk);
    if (*taken || bytes < CHUNK_BYTES) return WD_OK;
    f->wrong += !f->skips;
    f->skips = true;
    *taken = bytes;
    return WD_OK;
}

static wd_status cannot_read(const char *path, wd_err *err)
{
    if (errno == ENOENT)
        return wd_fail(err, WD_NOT_FOUND,
                       "%s is not there: expected the folder of a run of train that has made a "
                       "step",
                       path);
    return wd_fail(err, WD_IO, "%s: cannot be read: %s", path, strerror(errno));
}

static wd_status read_lines(wd_metrics_file *f, int fd, char *chunk, const char *path, wd_err *err)
{
    for (;;) {
        size_t taken = 0;
        const ssize_t n = pread(fd, chunk, CHUNK_BYTES, (off_t)f->offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cannot_read(path, err);
        if (n > 0) WD_TRY(take_lines(&taken, f, chunk, (size_t)n, err));
        if (!taken) return WD_OK;
        f->offset += (int64_t)taken;
    }
}

wd_status wd__metrics_file_read(wd_metrics_file *file, const char *path, wd_err *err)
{
    struct stat is;
    char *chunk;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return cannot_read(path, err);
    wd_status status = fstat(fd, &is) ? cannot_read(path, err) : WD_OK;
    if (status == WD_OK && !S_ISREG(is.st_mode))
        status = wd_fail(err, WD_BAD_FORMAT, "%s: expected a file, found something else", path);
    if (status == WD_OK) status = wd_alloc((void **)&chunk, CHUNK_BYTES, 1, "metrics", err);
    if (status == WD_OK) {
        if (file->disk != is.st_dev || file->inode != is.st_ino || is.st_size < file->offset)
            forget(file);
        file->disk = is.st_dev;
        file->inode = is.st_ino;
        status = read_lines(file, fd, chunk, path, err);
        wd_free(chunk);
    }
    close(fd);
    return status;
}

double wd__metrics_file_loss(const wd_metrics_file *file)
{
    const int64_t n = file->losses < WD_LAST_LOSSES ? file->losses : WD_LAST_LOSSES;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += file->loss[i] / (double)n;
    return n ? sum : NAN;
}

/* ---- curves ---- */

static void join(wd_curve_bin *to, const wd_curve_bin *next)
{
    to->last = next->last;
    to->low = fmin(to->low, next->low);
    to->high = fmax(to->high, next->high);
    to->sum += next->sum;
    to->steps += next->steps;
    to->count += next->count;
}

static void halve(wd_curve *c)
{
    for (int i = 0; i < c->count / 2; i++) {
        c->bin[i] = c->bin[2 * i];
        join(&c->bin[i], &c->bin[2 * i + 1]);
    }
    c->count /= 2;
    c->per_bin *= 2;
}

void wd__curve_add(wd_curve *curve, double step, double value)
{
    wd_curve *c = curve;
    const wd_curve_bin one = {step, step, value, value, value, step, 1};
    if (!c->per_bin) c->per_bin = 1;
    c->newest = value;
    const bool begins = !c->count || c->bin[c->count - 1].count >= c->per_bin;
    if (!begins) {
        join(&c->bin[c->count - 1], &one);
        return;
    }
    if (c->count == WD_CURVE_BINS) halve(c);
    c->bin[c->count++] = one;
}

/* A sum of huge values may overflow, their mean is between them all the same. */
double wd__curve_bin_mean(const wd_curve_bin *bin)
{
    const double mean = bin->sum / (double)bin->count;
    if (isfinite(mean)) return fmin(fmax(mean, bin->low), bin->high);
    return bin->low / 2 + bin->high / 2;
}

double wd__curve_bin_step(const wd_curve_bin *bin)
{
    return bin->steps / (double)bin->count;
}

void wd__curve_range(double *low, double *high, const wd_curve *curve)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (int i = 0; i < curve->count; i++) {
        *low = fmin(*low, curve->bin[i].low);
        *high = fmax(*high, curve->bin[i].high);
    }
}
