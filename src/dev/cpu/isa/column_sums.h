/* Sums over rows, such as a bias' gradient: fixed chunks of rows are summed on their own, then the
 * chunks' sums in order. So the result does not depend on the number of threads or on other
 * samples.
 *
 * Rows come in groups with a result each (a sample's rows, or all rows); a chunk never spans two.
 */
#ifndef WD_DEV_CPU_ISA_COLUMN_SUMS_H
#define WD_DEV_CPU_ISA_COLUMN_SUMS_H

#include "dev/cpu/isa/rows.h"

enum { OUTPUTS_MAX = 2 };

/* Computes rows [begin, end), and adds their terms to sums [outputs, width], row by row. */
typedef void column_sums_fn(float *sums, int64_t begin, int64_t end, const void *args);

typedef struct column_sums {
    float *out[OUTPUTS_MAX]; /* [groups, width], groups out_stride apart; or NULL */
    int outputs;
    bool add; /* += instead of = */
    int64_t rows, group_rows, width, out_stride;
    column_sums_fn *fn;
    const void *args;
    float *workspace; /* [chunks, outputs, width] */
} column_sums;

static inline void column_sums_rows(int64_t begin, int64_t end, void *context)
{
    const column_sums *c = context;
    int64_t per_group = column_sums_chunks(c->group_rows), size = c->outputs * c->width;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        float *sums = c->workspace + chunk * size;
        int64_t group = chunk / per_group * c->group_rows;
        int64_t first = chunk % per_group * CHUNK_ROWS;
        int64_t last = least(first + CHUNK_ROWS, c->group_rows);
        memset(sums, 0, (size_t)size * sizeof *sums);
        c->fn(sums, group + first, group + last, c->args);
    }
}

/* Columns [begin, end) of the outputs of all groups, one after the other. */
static inline void column_sums_finish(int64_t begin, int64_t end, void *context)
{
    const column_sums *c = context;
    int64_t per_group = column_sums_chunks(c->group_rows), n;
    for (int64_t at = begin; at < end; at += n) {
        int64_t column = at % c->width, output = at / c->width % c->outputs;
        int64_t group = at / c->width / c->outputs;
        n = least(end - at, c->width - column);
        if (!c->out[output]) continue;
        float *restrict out = c->out[output] + group * c->out_stride + column;
        const float *sums = c->workspace + (group * per_group * c->outputs + output) * c->width;
        if (!c->add) memset(out, 0, (size_t)n * sizeof *out);
        for (int64_t chunk = 0; chunk < per_group; chunk++) {
            const float *restrict part = sums + chunk * c->outputs * c->width + column;
            EACH(i, n) out[i] += part[i];
        }
    }
}

static inline void column_sums_run(column_sums *c)
{
    if (c->rows == 0) return;
    int64_t groups = c->rows / c->group_rows, per_group = column_sums_chunks(c->group_rows);
    wd_parallel_for(groups * per_group, grain_rows(GRAIN, CHUNK_ROWS * c->width), column_sums_rows,
                    c);
    wd_parallel_for(groups * c->outputs * c->width, 1 + GRAIN / per_group, column_sums_finish, c);
}

#endif
