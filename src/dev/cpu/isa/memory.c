/* Copies that change layout or dtype: casts, strided copies, gathered rows, constants. */
#include "dev/cpu/isa/isa.h"

#include <inttypes.h>

#include "core/error.h"
#include "dev/cpu/isa/rows.h"
#include "dev/strided_walk.h"

/* ---- cast ---- */

static void cast_part(int64_t begin, int64_t end, void *context)
{
    const wd_cast_args *a = context;
    float buffer[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = least(CHUNK, end - at);
        const float *from = widen(buffer, a->from, a->from_type, at, n);
        if (a->to_type == WD_F32)
            memcpy((float *)a->to + at, from, (size_t)n * sizeof *from);
        else
            narrow(a->to, a->to_type, at, from, n);
    }
}

void KERNEL(cast)(const void *args, wd_cpu_context *context)
{
    (void)context;
    wd_parallel_for(((const wd_cast_args *)args)->count, GRAIN, cast_part, (void *)args);
}

/* ---- fill ---- */

static void fill_part(int64_t begin, int64_t end, void *context)
{
    const wd_fill_args *a = context;
    int64_t n = end - begin;
    if (a->type == WD_F32) {
        float *to = (float *)a->to + begin;
        EACH(i, n) to[i] = a->value;
    } else {
        uint16_t *to = (uint16_t *)a->to + begin, value;
        value = a->type == WD_BF16 ? (uint16_t)(bf16_bits(a->value) >> 16) : f32_to_f16(a->value);
        EACH(i, n) to[i] = value;
    }
}

void KERNEL(fill)(const void *args, wd_cpu_context *context)
{
    (void)context;
    wd_parallel_for(((const wd_fill_args *)args)->count, GRAIN, fill_part, (void *)args);
}

/* ---- gather ---- */

static void gather_part(int64_t begin, int64_t end, void *context)
{
    const wd_gather_rows_args *a = context;
    float buffer[CHUNK];
    for (int64_t r = begin; r < end; r++) {
        const int64_t from = a->index[r];
        WD_REQUIRE(from >= -1 && from < a->table_rows, "row %" PRId64 " of a table of %" PRId64,
                   from, a->table_rows);
        for (int64_t column = 0; column < a->width; column += CHUNK) {
            int64_t n = least(CHUNK, a->width - column), to = r * a->width + column;
            const float *x = buffer;
            if (from < 0)
                memset(buffer, 0, (size_t)n * sizeof *buffer);
            else
                x = widen(buffer, a->from, a->from_type, from * a->width + column, n);
            if (a->to_type == WD_F32)
                memcpy((float *)a->to + to, x, (size_t)n * sizeof *x);
            else
                narrow(a->to, a->to_type, to, x, n);
        }
    }
}

void KERNEL(gather_rows)(const void *args, wd_cpu_context *context)
{
    (void)context;
    const wd_gather_rows_args *a = args;
    wd_parallel_for(a->rows, grain_rows(GRAIN, a->width), gather_part, (void *)args);
}

/* ---- strided copy ---- */

enum { TILE = 32, TILE_RUN = 64 }; /* columns and elements of a tile that is transposed */

/* The loops of dev/strided_walk.h, with the outer dimensions in parallel. If `from` is contiguous
 * along another dimension than `inner`, that dimension is `column` instead of an outer one: runs of
 * TILE columns are copied together, so that a cache line is read once. */
typedef struct walk {
    const wd_strided_copy_args *args;
    wd_strided_walk by;
    wd_stride column;
} walk;

/* Removes the dimension along which `from` is contiguous from the outer ones. */
static void choose_column(walk *w)
{
    if (w->by.inner.from == 1) return;
    for (int i = 0; i < w->by.outers; i++) {
        if (w->by.outer[i].from != 1) continue;
        w->column = w->by.outer[i];
        w->by.outers--;
        for (int j = i; j < w->by.outers; j++) w->by.outer[j] = w->by.outer[j + 1];
        return;
    }
}

/* False if there is nothing to copy. */
static bool plan_walk(walk *w, const wd_strided_copy_args *a)
{
    *w = (walk){.args = a, .column = {1, 0, 0}};
    if (!wd_strided_walk_plan(&w->by, a)) return false;
    choose_column(w);
    return true;
}

/* Offsets of the index vector number `n` of `d`. */
static void offsets(int64_t *to, int64_t *from, const wd_stride *d, int count, int64_t n)
{
    for (int i = count - 1; i >= 0; i--) {
        int64_t index = n % d[i].count;
        n /= d[i].count;
        *to += index * d[i].to;
        *from += index * d[i].from;
    }
}

/* buffer[i] = data[at + i stride] as fp32. */
static const float *load_run(float *buffer, const void *data, wd_dtype type, int64_t at,
                             int64_t stride, int64_t n)
{
    if (stride == 1) return widen(buffer, data, type, at, n);
    if (type == WD_F32) {
        const float *from = (const float *)data + at;
        EACH(i, n) buffer[i] = from[i * stride];
        return buffer;
    }
    uint16_t raw[CHUNK];
    const uint16_t *from = (const uint16_t *)data + at;
    EACH(i, n) raw[i] = from[i * stride];
    return widen(buffer, raw, type, 0, n);
}

static void store_run(void *data, wd_dtype type, int64_t at, int64_t stride, const float *y,
                      int64_t n)
{
    if (type == WD_F32) {
        float *to = (float *)data + at;
        EACH(i, n) to[i * stride] = y[i];
        return;
    }
    if (stride == 1) {
        narrow(data, type, at, y, n);
        return;
    }
    uint16_t raw[CHUNK], *to = (uint16_t *)data + at;
    narrow(raw, type, 0, y, n);
    EACH(i, n) to[i * stride] = raw[i];
}

/* to = alpha x + beta to for `n` elements of a run. */
static void finish_run(const walk *w, int64_t to, const float *x, int64_t n)
{
    const wd_strided_copy_args *a = w->args;
    float old_run[CHUNK], y[CHUNK];
    if (a->alpha != 1 || a->beta != 0) {
        EACH(i, n) y[i] = a->alpha * x[i];
        x = y;
    }
    if (a->beta != 0) {
        const float *old = load_run(old_run, a->to, a->to_type, to, w->by.inner.to, n);
        EACH(i, n) y[i] += a->beta * old[i];
    }
    store_run(a->to, a->to_type, to, w->by.inner.to, x, n);
}

/* One run along the inner dimension. */
static void copy_run(const walk *w, int64_t to, int64_t from)
{
    const wd_strided_copy_args *a = w->args;
    if (a->alpha == 1 && a->beta == 0 && a->to_type == a->from_type && w->by.inner.to == 1 &&
        w->by.inner.from == 1) {
        size_t size = wd_dtype_bytes(a->to_type);
        memcpy((char *)a->to + (size_t)to * size, (const char *)a->from + (size_t)from * size,
               (size_t)w->by.inner.count * size);
        return;
    }
    float x_run[CHUNK];
    for (int64_t done = 0; done < w->by.inner.count; done += CHUNK) {
        int64_t n = least(CHUNK, w->by.inner.count - done);
        const float *x = load_run(x_run, a->from, a->from_type, from + done * w->by.inner.from,
                                  w->by.inner.from, n);
        finish_run(w, to + done * w->by.inner.to, x, n);
    }
}

/* The runs of `columns` neighbouring columns. */
static void copy_columns(const walk *w, int64_t to, int64_t from, int64_t columns)
{
    const wd_strided_copy_args *a = w->args;
    float tile[TILE][TILE_RUN], buffer[TILE];
    for (int64_t done = 0; done < w->by.inner.count; done += TILE_RUN) {
        int64_t n = least(TILE_RUN, w->by.inner.count - done);
        for (int64_t i = 0; i < n; i++) {
            const float *line =
                widen(buffer, a->from, a->from_type, from + (done + i) * w->by.inner.from, columns);
            for (int64_t c = 0; c < columns; c++) tile[c][i] = line[c];
        }
        for (int64_t c = 0; c < columns; c++)
            finish_run(w, to + done * w->by.inner.to + c * w->column.to, tile[c], n);
    }
}

static int64_t column_blocks(const walk *w)
{
    return (w->column.count + TILE - 1) / TILE;
}

/* Index vectors of the outer dimensions, each with its blocks of columns. */
static void copy_outer(int64_t begin, int64_t end, void *context)
{
    const walk *w = context;
    int64_t blocks = column_blocks(w);
    for (int64_t n = begin; n < end; n++)
        for (int64_t repeat = 0; repeat < w->by.repeat_count; repeat++) {
            int64_t column = n % blocks * TILE, to = column * w->column.to, from = column;
            offsets(&to, &from, w->by.outer, w->by.outers, n / blocks);
            offsets(&to, &from, w->by.repeat, w->by.repeats, repeat);
            if (w->column.count == 1)
                copy_run(w, to, from);
            else
                copy_columns(w, to, from, least(TILE, w->column.count - column));
        }
}

/* A single run: its parts in parallel. */
static void copy_inner(int64_t begin, int64_t end, void *context)
{
    walk part = *(const walk *)context;
    part.by.inner.count = end - begin;
    int64_t to = begin * part.by.inner.to, from = begin * part.by.inner.from;
    for (int64_t repeat = 0; repeat < part.by.repeat_count; repeat++) {
        int64_t at_to = to, at_from = from;
        offsets(&at_to, &at_from, part.by.repeat, part.by.repeats, repeat);
        copy_run(&part, at_to, at_from);
    }
}

void KERNEL(strided_copy)(const void *args, wd_cpu_context *context)
{
    (void)context;
    walk w;
    if (!plan_walk(&w, args)) return;
    int64_t outer = column_blocks(&w), run = w.by.inner.count * w.by.repeat_count;
    for (int i = 0; i < w.by.outers; i++) outer *= w.by.outer[i].count;
    if (w.by.outers == 0 && w.column.count == 1)
        wd_parallel_for(w.by.inner.count, 1 + GRAIN / w.by.repeat_count, copy_inner, &w);
    else
        wd_parallel_for(outer, grain_rows(GRAIN, run * least(TILE, w.column.count)), copy_outer,
                        &w);
}
