/* Products of bf16 as the tensor cores of sm_90 make them: sixteen products at a time are added to
 * the fp32 sum so far. All seventeen are cut off at the same place, two bits below the last bit of
 * the largest, added exactly, and the new sum is cut off to fp32: towards zero, each time. The
 * model is that of Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores",
 * arXiv:2512.07004. */
#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "dev/cpu/reference.h"
#include "standin/libraries.h"

enum { PRODUCTS = 16, BITS = 23 + 2 };

static float towards_zero(double value)
{
    const float near = (float)value;
    return fabs((double)near) > fabs(value) ? nextafterf(near, 0) : near;
}

/* sum += a b, of `count` products. */
static float add_products(float sum, const float *a, const float *b, int count)
{
    int largest = sum != 0 ? ilogbf(sum) : INT32_MIN;
    for (int i = 0; i < count; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i]) || !isfinite(sum)) return fmaf(a[i], b[i], sum);
        if (a[i] == 0 || b[i] == 0) continue;
        const int exponent = ilogbf(a[i]) + ilogbf(b[i]); /* a factor of up to 4 is beyond it */
        if (exponent > largest) largest = exponent;
    }
    if (largest == INT32_MIN) return sum;
    const double one = ldexp(1, BITS - largest);
    double whole = trunc(sum * one);
    for (int i = 0; i < count; i++) whole += trunc((double)a[i] * b[i] * one);
    return towards_zero(whole / one);
}

static float sum_of(const float *a, const float *b, int64_t k)
{
    float sum = 0;
    for (int64_t i = 0; i < k; i += PRODUCTS)
        sum = add_products(sum, a + i, b + i, k - i < PRODUCTS ? (int)(k - i) : PRODUCTS);
    return sum;
}

/* to[i][j] = from[at + i line + j step]. */
static void gather(float *to, const void *from, int64_t at, int64_t rows, int64_t k, int64_t line,
                   int64_t step)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < k; j++)
            to[i * k + j] = (float)wd__load(from, WD_BF16, at + i * line + j * step);
}

void wd_standin_tensor_core_matmul(const wd_matmul_args *g)
{
    const bool ta = g->transpose_a, tb = g->transpose_b;
    float *a = calloc((size_t)((g->m + g->n) * g->k), sizeof *a), *b = a + g->m * g->k;
    WD_REQUIRE(a, "no memory for a product");
    for (int64_t i = 0; i < g->batch; i++) {
        gather(a, g->a, i * g->stride_a, g->m, g->k, ta ? 1 : g->lda, ta ? g->lda : 1);
        gather(b, g->b, i * g->stride_b, g->n, g->k, tb ? g->ldb : 1, tb ? 1 : g->ldb);
        for (int64_t at = 0; at < g->m * g->n; at++) {
            const int64_t row = at / g->n, col = at % g->n;
            const int64_t c = i * g->stride_c + row * g->ldc + col;
            float value = sum_of(a + row * g->k, b + col * g->k, g->k);
            if (g->bias) value += (float)wd__load(g->bias, g->bias_type, col);
            value = (float)wd_ref_act(g->act, value);
            if (g->beta != 0) value += g->beta * (float)wd__load(g->c, g->c_type, c);
            wd__store(g->c, g->c_type, c, value);
        }
    }
    free(a);
}
