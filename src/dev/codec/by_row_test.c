/* Weights as bytes with a scale for each row: nearest values, rows without any, every number of
 * threads. */
#include "testing.h"

#include "core/parallel.h"
#include "dev/codec/by_row.h"
#include "dev/codec/codec.h"

#include <float.h>

enum { ROWS = 64, COLUMNS = 1031 };

static float value[ROWS * COLUMNS];

static void fill(void)
{
    uint32_t state = 7;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        state = state * 1664525u + 1013904223u;
        value[i] = (float)(int32_t)state * 0x1p-31f * ldexpf(1, i / COLUMNS % 40 - 30);
    }
}

/* The bytes whose values are nearest, found by trying all. */
static void nearest_of(wd_dtype dtype, float most)
{
    static uint8_t q[ROWS * COLUMNS];
    float scale[ROWS];
    wd_quantise_rows(q, scale, value, ROWS, COLUMNS, dtype);
    for (int r = 0; r < ROWS; r += 9) {
        float largest = 0;
        for (int i = 0; i < COLUMNS; i++) largest = fmaxf(largest, fabsf(value[r * COLUMNS + i]));
        assert_true(scale[r] == largest / most);
        for (int i = 0; i < COLUMNS; i++) {
            const int at = r * COLUMNS + i;
            const float quotient = value[at] / scale[r];
            const float error = fabsf(codec_value(q, dtype, at) - quotient);
            for (int v = 0; v < 256; v++) {
                const uint8_t other = (uint8_t)v;
                assert_false(fabsf(codec_value(&other, dtype, 0) - quotient) < error);
            }
        }
    }
}

static void nearest(void **state)
{
    (void)state;
    fill();
    nearest_of(WD_F8_E4M3, 448);
    nearest_of(WD_I8, 127);
}

static void rows_without_a_scale(void **state)
{
    (void)state;
    const float rows[4][3] = {{0, -0.0f, 0}, {1e-40f, -1e-45f, 0}, {FLT_MAX, -FLT_MAX, 1}, {448}};
    uint8_t q[12];
    float scale[4];
    for (int d = 0; d < 2; d++) {
        const wd_dtype dtype = d ? WD_I8 : WD_F8_E4M3;
        wd_quantise_rows(q, scale, rows[0], 4, 3, dtype);
        assert_true(scale[0] == 1 && scale[1] == 1 && scale[2] == FLT_MAX / (d ? 127 : 448));
        for (int i = 0; i < 6; i++) assert_true(codec_value(q, dtype, i) == 0);
        assert_true(codec_value(q, dtype, 6) == (d ? 127 : 448));
        assert_true(codec_value(q, dtype, 7) == -(d ? 127 : 448));
        assert_true(codec_value(q, dtype, 8) == 0);
        assert_true(codec_value(q, dtype, 9) * scale[3] == 448);
    }
}

static void any_number_of_threads(void **state)
{
    (void)state;
    static uint8_t q[2][ROWS * COLUMNS];
    float scale[2][ROWS];
    const int threads = wd_parallel_threads();
    fill();
    for (int k = 0; k < 2; k++) {
        wd_parallel_set_threads(k ? 3 : 1);
        wd_quantise_rows(q[k], scale[k], value, ROWS, COLUMNS, WD_F8_E4M3);
    }
    wd_parallel_set_threads(threads);
    assert_memory_equal(q[0], q[1], sizeof *q);
    assert_memory_equal(scale[0], scale[1], sizeof *scale);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest),
        cmocka_unit_test(rows_without_a_scale),
        cmocka_unit_test(any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
