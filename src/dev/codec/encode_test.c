/* Values as the bytes of quantised formats: every byte comes back from its value, and what lies
 * between two values goes to the nearer one. */
#include "testing.h"

#include "core/parallel.h"
#include "dev/codec/codec.h"
#include "dev/codec/encode.h"
#include "dev/codec/q4_k_encode.h"

static void float8_of_its_own_values(void **state)
{
    (void)state;
    for (int v = 0; v < 256; v++) {
        const float value = float8_e4m3_value((uint8_t)v);
        const int back = float8_e4m3_bits(value);
        if ((v & 0x7f) == 0x7f)
            assert_int_equal(back & 0x7f, 0x7f); /* NaN */
        else
            assert_int_equal(back, v);
    }
}

static void float8_between_two_values(void **state)
{
    (void)state;
    for (int v = 0; v < 0x7e; v++) {
        const float low = float8_e4m3_value((uint8_t)v), high = float8_e4m3_value((uint8_t)(v + 1));
        const float middle = (low + high) / 2;                   /* exact: 4 bits of mantissa */
        assert_int_equal(float8_e4m3_bits(middle), v + (v & 1)); /* the even one */
        assert_int_equal(float8_e4m3_bits(nextafterf(middle, 0)), v);
        assert_int_equal(float8_e4m3_bits(nextafterf(middle, high)), v + 1);
        assert_int_equal(float8_e4m3_bits(-nextafterf(middle, high)), (v + 1) | 0x80);
    }
}

static void float8_beyond_its_values(void **state)
{
    (void)state;
    static const float large[] = {448, 449, 464, 480, 1e30f, INFINITY};
    static const float small[] = {0, 0x1p-149f, 0x1p-126f, 0x1p-10f};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_int_equal(float8_e4m3_bits(large[i]), 0x7e);
        assert_int_equal(float8_e4m3_bits(-large[i]), 0xfe);
    }
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        assert_int_equal(float8_e4m3_bits(small[i]), 0);
        assert_int_equal(float8_e4m3_bits(-small[i]), 0x80);
    }
    assert_int_equal(float8_e4m3_bits(NAN) & 0x7f, 0x7f);
    assert_int_equal(float8_e4m3_bits(float_of(0xff800001u)), 0xff); /* NaN keeps its sign */
}

/* ---- blocks ---- */

/* Sums of four random numbers, which are spread about as weights are. */
static void make_weights(float *out, int64_t count)
{
    uint32_t state = 12345;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 1664525u + 1013904223u;
            sum += (double)(state >> 8) / (1 << 24) - 0.5;
        }
        out[i] = (float)sum;
    }
}

static void q8_0(void **state)
{
    (void)state;
    float values[Q8_0_VALUES] = {0};
    uint8_t block[Q8_0_BYTES], again[Q8_0_BYTES];
    memset(block, 1, sizeof block);
    q8_0_encode(block, values);
    for (int i = 0; i < Q8_0_BYTES; i++) assert_int_equal(block[i], 0);
    for (int i = 0; i < Q8_0_VALUES; i++) values[i] = i % 2 ? 1e-42f : -1e-38f; /* too small */
    memset(block, 1, sizeof block);
    q8_0_encode(block, values);
    for (int i = 0; i < Q8_0_BYTES; i++) assert_int_equal(block[i], 0);
    for (int i = 0; i < Q8_0_VALUES; i++) values[i] = 0.5f * (float)(i - 16);
    values[31] = 63.5f; /* so the factor is 0.5 */
    q8_0_encode(block, values);
    for (int i = 0; i < Q8_0_VALUES; i++) assert_true(q8_0_value(block, i) == values[i]);
    values[0] = -63.5f;
    values[1] = 0.25f; /* half a step goes away from zero */
    values[2] = -0.25f;
    values[3] = 0.2499999f;
    q8_0_encode(block, values);
    assert_true(q8_0_value(block, 0) == -63.5f && q8_0_value(block, 3) == 0);
    assert_true(q8_0_value(block, 1) == 0.5f && q8_0_value(block, 2) == -0.5f);
    make_weights(values, Q8_0_VALUES); /* what was rounded once comes back */
    q8_0_encode(block, values);
    for (int i = 0; i < Q8_0_VALUES; i++) values[i] = q8_0_value(block, i);
    q8_0_encode(again, values);
    assert_memory_equal(block, again, sizeof block);
}

static void k_scales(void **state)
{
    (void)state;
    uint8_t packed[12] = {0};
    for (int g = 0; g < 8; g++) put_k_scales(packed, g, 63 - 7 * g, 9 * g);
    for (int g = 0; g < 8; g++) {
        assert_int_equal(k_factor(packed, g), 63 - 7 * g);
        assert_int_equal(k_offset(packed, g), 9 * g);
    }
}

/* The relative error of Q4_K, as a root of means. ggml's reference (quantize_row_q4_K_ref of
 * ggml-quants.c at d99724f2) has GGML_RMSE on these values. */
#define GGML_RMSE 0.06869

static void q4_k_is_as_good_as_ggmls(void **state)
{
    (void)state;
    enum { BLOCKS = 400, COUNT = BLOCKS * Q4_K_VALUES };
    double errors = 0, squares = 0;
    float *values = malloc(COUNT * sizeof *values);
    uint8_t block[Q4_K_BYTES];
    make_weights(values, COUNT);
    for (int b = 0; b < BLOCKS; b++) {
        const float *x = values + b * Q4_K_VALUES;
        q4_k_encode(block, x);
        for (int i = 0; i < Q4_K_VALUES; i++) {
            const double error = (double)q4_k_value(block, i) - (double)x[i];
            errors += error * error;
            squares += (double)x[i] * (double)x[i];
        }
    }
    free(values);
    const double rmse = sqrt(errors / squares);
    if (rmse > GGML_RMSE || rmse < 0.5 * GGML_RMSE) fail_msg("relative error %g", rmse);
}

/* Groups whose values are all equal, of one sign, tiny or large. */
static void q4_k_of_odd_blocks(void **state)
{
    (void)state;
    static const float cases[][2] = {{0, 0},          {1, 1},     {-1, -1},        {-3, -1},
                                     {2, 3},          {0, 65504}, {-65504, 65504}, {0, 1e-4f},
                                     {-1e-4f, 1e-4f}, {-65504, 0}};
    float values[Q4_K_VALUES];
    uint8_t block[Q4_K_BYTES];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const float low = cases[c][0], high = cases[c][1];
        for (int i = 0; i < Q4_K_VALUES; i++) values[i] = low + (high - low) * (float)(i % 32) / 31;
        q4_k_encode(block, values);
        /* at most one of the 15 steps of the range, which has 0 in it */
        const float range = fmaxf(high, 0) - fminf(low, 0);
        for (int i = 0; i < Q4_K_VALUES; i++)
            if (fabsf(q4_k_value(block, i) - values[i]) > range / 15)
                fail_msg("case %d, value %d: %g became %g", (int)c, i, (double)values[i],
                         (double)q4_k_value(block, i));
    }
    for (int i = 0; i < Q4_K_VALUES; i++) values[i] = i % 2 ? 1e-30f : -1e-38f; /* too small */
    q4_k_encode(block, values);
    for (int i = 0; i < Q4_K_VALUES; i++) assert_true(q4_k_value(block, i) == 0);
}

/* Every dtype, in one piece and with several threads: the same bytes, which widen to the values. */
static void arrays(void **state)
{
    (void)state;
    enum { COUNT = 256 * 300 };
    static const wd_dtype dtypes[] = {WD_F32, WD_F16, WD_BF16, WD_F8_E4M3, WD_Q8_0, WD_Q4_K};
    wd_err err;
    int threads;
    float *values = malloc(COUNT * sizeof *values);
    make_weights(values, COUNT);
    wd_test_ok(wd_parallel_start(&threads, 4, &err), &err);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        const size_t bytes = wd_dtype_size(dtypes[d], COUNT);
        uint8_t *one = calloc(1, bytes), *four = calloc(1, bytes);
        wd_parallel_set_threads(1);
        wd_values_encode(one, dtypes[d], values, COUNT);
        wd_parallel_set_threads(threads);
        wd_values_encode(four, dtypes[d], values, COUNT);
        assert_memory_equal(one, four, bytes);
        for (int64_t i = 0; i < COUNT; i++) {
            const float v = wd_dtype_is_quantised(dtypes[d]) ? codec_value(one, dtypes[d], i)
                                                             : wd_float_at(one, dtypes[d], i);
            if (fabsf(v - values[i]) > 0.25f)
                fail_msg("%g became %g", (double)values[i], (double)v);
        }
        free(one);
        free(four);
    }
    free(values);
    assert_true(wd__dtype_is_encoded(WD_Q4_K) && !wd__dtype_is_encoded(WD_Q6_K));
    assert_false(isinf(f16_to_f32(f32_to_f16(wd_dtype_most(WD_F16)))));
    assert_true(isinf(f16_to_f32(f32_to_f16(nextafterf(wd_dtype_most(WD_F16), INFINITY)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float8_of_its_own_values),
        cmocka_unit_test(float8_between_two_values),
        cmocka_unit_test(float8_beyond_its_values),
        cmocka_unit_test(q8_0),
        cmocka_unit_test(k_scales),
        cmocka_unit_test(q4_k_is_as_good_as_ggmls),
        cmocka_unit_test(q4_k_of_odd_blocks),
        cmocka_unit_test(arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
