/* Quantised weights as floats: values that their formats' descriptions give, and every kernel
 * against the plain C version, bit for bit. */
#include "kernels/kernels_check.h"

#include "dev/codec/codec.h"
#include "dev/codec/values.h"

/* ---- values ---- */

static void float8(void **state)
{
    (void)state;
    assert_true(float8_e4m3_value(0x38) == 1.0f);
    assert_true(float8_e4m3_value(0x7e) == 448.0f);
    assert_true(float8_e4m3_value(0x01) == 0x1p-9f);
    assert_true(float8_e4m3_value(0x88) == -0x1p-6f);
    assert_true(isnan(float8_e4m3_value(0x7f)) && isnan(float8_e4m3_value(0xff)));
    assert_true(float8_e5m2_value(0x3c) == 1.0f);
    assert_true(float8_e5m2_value(0x7b) == 57344.0f);
    assert_true(isinf(float8_e5m2_value(0x7c)) && isnan(float8_e5m2_value(0x7e)));
    assert_true(float8_e5m2_value(0x81) == -0x1p-16f);
    for (int v = 0; v < 256; v++) { /* by the definition: 4 bits of exponent, 3 of mantissa */
        const int e = v >> 3 & 15, m = v & 7;
        const float magnitude = e ? ldexpf(1 + (float)m / 8, e - 7) : ldexpf((float)m / 8, -6);
        if ((v & 0x7f) == 0x7f) continue;
        assert_true(float8_e4m3_value((uint8_t)v) == (v & 128 ? -magnitude : magnitude));
    }
}

/* A block of each format whose values are known: bytes count up from `first`, the factors are 2. */
static void fill_block(uint8_t *block, size_t bytes, const int *factors, int first)
{
    for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)(first + (int)i);
    for (; *factors >= 0; factors++) block[*factors] = 0, block[*factors + 1] = 0x40;
}

static void blocks(void **state)
{
    (void)state;
    uint8_t b[256];
    fill_block(b, Q8_0_BYTES, (int[]){0, -1}, 120); /* values are bytes 122.. */
    assert_true(q8_0_value(b, 0) == 244 && q8_0_value(b, 6) == -256 && q8_0_value(b, 31) == -206);
    fill_block(b, Q4_0_BYTES, (int[]){0, -1}, 0x20);
    assert_true(q4_0_value(b, 0) == 2 * (2 - 8) && q4_0_value(b, 16) == 2 * (2 - 8));
    assert_true(q4_0_value(b, 15) == 2 * (1 - 8) && q4_0_value(b, 31) == 2 * (3 - 8));
    fill_block(b, Q5_0_BYTES, (int[]){0, -1}, 0x20); /* high bits 0x22 0x23 0x24 0x25 */
    assert_true(q5_0_value(b, 0) == 2 * (6 - 16) && q5_0_value(b, 1) == 2 * (7 + 16 - 16));
    assert_true(q5_0_value(b, 16) == 2 * (2 - 16) && q5_0_value(b, 18) == 2 * (2 + 16 - 16));
    fill_block(b, Q4_K_BYTES, (int[]){0, 2, -1}, 0x40); /* scales are bytes 0x44.. */
    assert_int_equal(k_factor(b + 4, 0), 0x44 & 63);
    assert_int_equal(k_offset(b + 4, 3), 0x4b & 63);
    assert_int_equal(k_factor(b + 4, 5), (0x4d & 15) | (0x45 >> 6) << 4);
    assert_int_equal(k_offset(b + 4, 5), 0x4d >> 4 | (0x49 >> 6) << 4);
    assert_true(q4_k_value(b, 0) == 2 * 4 * 0 - 2 * 8); /* half of byte 0x50 */
    assert_true(q4_k_value(b, 33) == 2 * (0x45 & 63) * 5 - 2 * (0x49 & 63));
    fill_block(b, Q5_K_BYTES, (int[]){0, 2, -1}, 0x40); /* upper bits 0x50.., halves 0x70.. */
    assert_true(q5_k_value(b, 0) == 2 * 4 * 0 - 2 * 8);
    assert_true(q5_k_value(b, 4 * 32 + 2) == 2.0f * (float)k_factor(b + 4, 4) * (0xb2 % 16 + 16) -
                                                 2.0f * (float)k_offset(b + 4, 4));
    fill_block(b, Q6_K_BYTES, (int[]){208, -1},
               0); /* low halves 0.., upper bits 128.., scales 192 */
    assert_true(q6_k_value(b, 1) == 2.0f * (int8_t)192 * ((1 | (129 & 3) << 4) - 32));
    assert_true(q6_k_value(b, 128 + 96 + 17) ==
                2.0f * (int8_t)(192 + 15) *
                    (((64 + 32 + 17) >> 4 | ((160 + 17) >> 6 & 3) << 4) - 32));
}

/* Values of the package gguf (0.19, gguf/quants.py), for a block whose byte i is 7 + 53 i, with the
 * factors 0x2e66 and 0xb123: the first and last values, some between, and the sum of all, each
 * times its number from 1 on, which is exact in double. */
static void blocks_of_the_gguf_package(void **state)
{
    (void)state;
    static const struct {
        wd_dtype type;
        int factor[2];
        float value[6];
        double sum;
    } rows[] = {
        {WD_Q4_1,
         {0, 2},
         {0x1.e0ep-1f, -0x1.48cp-3f, 0x1.c1ep-2f, 0x1.23ap+0f, 0x1.3d38p+0f, 0x1.56dp+0f},
         0x1.5270d8p+8},
        {WD_Q5_1,
         {0, 2},
         {0x1.7828p+1f, 0x1.d6c8p+0f, 0x1.adbp-1f, 0x1.382cp+1f, 0x1.e0ep-1f, 0x1.0a08p+0f},
         0x1.69df94p+9},
        {WD_Q2_K,
         {80, 82},
         {0x1.0cbcp+1f, 0x0p+0f, 0x1.07dep+2f, 0x1.86aap+2f, 0x1.48cp+0f, 0x1.0acp-1f},
         0x1.2deab4bp+16},
        {WD_Q3_K,
         {108, -1},
         {0x1.b97ep+2f, -0x1.2654p+3f, -0x1.4cb8p+3f, 0x1.ccbp+0f, -0x1.a64cp+1f, 0x1.5984p+2f},
         -0x1.c62069p+11},
        {WD_IQ4_NL,
         {0, -1},
         {-0x1.4cb8p+3f, -0x1.1988p+1f, 0x1.531ep+2f, -0x1.ffep-1f, -0x1.ffep-1f, 0x1.998p-4f},
         -0x1.b87e1p+7},
        {WD_IQ4_XS,
         {0, -1},
         {-0x1.c3e3cp+5f, 0x1.87e78p+4f, -0x1.c7e38p+5f, 0x1.c3e3cp+5f, 0x1.ffep-1f, 0x1.3c52ap+6f},
         0x1.fc12a34p+13},
    };
    static const int factors[] = {0x2e66, 0xb123};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const int n = (int)wd_dtype_block(rows[r].type);
        const int at[] = {0, 1, n / 2 - 1, n / 2, n > 32 ? 3 * n / 4 + 5 : 21, n - 1};
        uint8_t b[256];
        double sum = 0;
        for (size_t i = 0; i < wd_dtype_bytes(rows[r].type); i++) b[i] = (uint8_t)(7 + 53 * i);
        for (int k = 0; k < 2 && rows[r].factor[k] >= 0; k++) {
            b[rows[r].factor[k]] = (uint8_t)factors[k];
            b[rows[r].factor[k] + 1] = (uint8_t)(factors[k] >> 8);
        }
        for (int k = 0; k < 6; k++)
            assert_true(codec_value(b, rows[r].type, at[k]) == rows[r].value[k]);
        for (int i = 0; i < n; i++) sum += (i + 1) * (double)codec_value(b, rows[r].type, i);
        assert_true(sum == rows[r].sum);
    }
}

/* ---- kernels ---- */

typedef struct params {
    wd_dtype type, to_type, rounded, scale_type;
    int64_t rows, width, scale_rows, scale_columns; /* scale_rows 0: no scales */
} params;

static void make_dequantise(world *w, void *out, const void *context)
{
    const params *p = context;
    const size_t bytes = wd_dtype_size(p->type, p->rows * p->width);
    const int64_t floats = (int64_t)(bytes + 3) / 4;
    wd_dequantise_args *a = out;
    *a = (wd_dequantise_args){.to = out_array(w, p->to_type, p->rows * p->width, 1, ORDINARY),
                              .from = make_array(w, WD_F32, floats, ORDINARY),
                              .to_type = p->to_type,
                              .from_type = p->type,
                              .scale_type = p->scale_type,
                              .rounded = p->rounded,
                              .rows = p->rows,
                              .width = p->width,
                              .scale_rows = p->scale_rows,
                              .scale_columns = p->scale_columns};
    uint8_t *data = w->array[1].data; /* every byte, in an order of its own */
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)(i * 167 + i / 256 * 31 + 3);
    if (p->scale_rows)
        a->scale = make_array(w, p->scale_type, p->scale_rows * p->scale_columns, ORDINARY);
}

static const tolerance exact = {0, 0};

static const wd_dtype quantised[] = {WD_I8,   WD_F8_E4M3, WD_F8_E5M2, WD_Q8_0,   WD_Q5_0,
                                     WD_Q4_0, WD_Q6_K,    WD_Q5_K,    WD_Q4_K,   WD_Q5_1,
                                     WD_Q4_1, WD_Q3_K,    WD_Q2_K,    WD_IQ4_NL, WD_IQ4_XS};

static void every_kernel(void **state)
{
    (void)state;
    static const wd_dtype to[][2] = {
        {WD_F32, WD_F32}, {WD_BF16, WD_BF16}, {WD_F32, WD_F16}, {WD_F32, WD_BF16}};
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++)
        for (int k = 0; k < 4; k++) {
            const bool blocks = wd_dtype_block(quantised[i]) > 1;
            params p = {quantised[i], to[k][0], to[k][1], WD_F32, 5, blocks ? 1280 : 1283, 0, 0};
            check_kernel(WD_OP_DEQUANTISE, make_dequantise, &p, exact);
        }
}

static void scales(void **state)
{
    (void)state;
    static const int64_t shape[][2] = {{1, 1}, {7, 1}, {7, 3}, {7, 24}, {1, 2}};
    static const wd_dtype types[] = {WD_F32, WD_BF16, WD_F16};
    for (int i = 0; i < 3; i++)
        for (int s = 0; s < 5; s++) {
            params p = {quantised[i],
                        s & 1 ? WD_BF16 : WD_F32,
                        s & 1 ? WD_BF16 : WD_F32,
                        types[(i + s) % 3],
                        7,
                        1200,
                        shape[s][0],
                        shape[s][1]};
            check_kernel(WD_OP_DEQUANTISE, make_dequantise, &p, exact);
        }
}

/* What reads weights on the host gives the operation's values. */
static void the_hosts_values(void **state)
{
    (void)state;
    wd_cpu_table table;
    wd__cpu_table_reference(&table);
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++) {
        const int64_t columns = i < 3 ? 4 : 0;
        params p = {quantised[i], WD_F32, WD_F32, WD_F32, 3, 512, i < 3 ? 3 : 0, columns};
        world w;
        float values[512];
        run_case(&w, &table, WD_OP_DEQUANTISE, make_dequantise, &p);
        wd_tensor t = {w.array[1].data, p.type, 2, {3, 512}, {0}};
        if (columns) t.scales = (wd_scales){w.array[2].data, WD_F32, 3, 4};
        wd_tensor_values(values, &t, 256, 512);
        const array got = {values, WD_F32, 512, 1, true, false};
        const array expected = {(float *)w.array[0].data + 256, WD_F32, 512, 1, true, false};
        assert_true(same_bits(&got, &expected));
        free_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kernel_test(float8),       kernel_test(blocks), kernel_test(blocks_of_the_gguf_package),
        kernel_test(every_kernel), kernel_test(scales), kernel_test(the_hosts_values),
    };
    return kernel_tests_run(tests);
}
