/* Weights as bytes with a scale for each row: see dev/codec/by_row.h. */
#include "dev/codec/by_row.h"

#include <float.h>
#include <math.h>

#include "core/parallel.h"
#include "dev/codec/float8.h"

enum { GRAIN_VALUES = 1 << 15 };

static const float I8_MAX = 127, F8_E4M3_MAX = 448;

typedef struct job {
    uint8_t *q;
    float *scale;
    const float *values;
    int64_t columns;
    wd_dtype dtype;
} job;

static float scale_of(const float *restrict row, int64_t columns, float most)
{
    float largest = 0;
    for (int64_t i = 0; i < columns; i++) {
        const float magnitude = fabsf(row[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    const float scale = largest / most;
    return scale >= FLT_MIN ? scale : 1;
}

static void quantise(int64_t begin, int64_t end, void *context)
{
    const job *j = context;
    for (int64_t r = begin; r < end; r++) {
        const float *restrict row = j->values + r * j->columns;
        uint8_t *restrict q = j->q + r * j->columns;
        const float scale = scale_of(row, j->columns, j->dtype == WD_I8 ? I8_MAX : F8_E4M3_MAX);
        j->scale[r] = scale;
        if (j->dtype == WD_I8)
            for (int64_t i = 0; i < j->columns; i++) q[i] = (uint8_t)(int8_t)rintf(row[i] / scale);
        else
            for (int64_t i = 0; i < j->columns; i++) q[i] = float8_e4m3_bits(row[i] / scale);
    }
}

void wd_quantise_rows(uint8_t *q, float *scale, const float *values, int64_t rows, int64_t columns,
                      wd_dtype dtype)
{
    job j = {q, scale, values, columns, dtype};
    wd_parallel_for(rows, columns < GRAIN_VALUES ? GRAIN_VALUES / columns : 1, quantise, &j);
}
