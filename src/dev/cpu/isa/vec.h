/* A vector of floats with the width of the instruction set, and its operations.
 *
 * Matrix products use it; the compiler vectorises other loops by itself. The speed of products
 * depends on which values stay in registers, and every path must use fused multiply-adds, or the
 * same sum would have other bits at the edge of a tile than in its middle. */
#ifndef WD_DEV_CPU_ISA_VEC_H
#define WD_DEV_CPU_ISA_VEC_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* for (i = 0; i < n; i++) with a small constant n, unrolled so that arrays stay in registers. It is
 * not unrolled with sanitizers, which would take the compiler minutes per file. */
#ifdef WD_SANITIZE
#define TIMES(i, n) for (int i = 0; i < (n); i++)
#elif defined(__clang__)
#define TIMES(i, n) _Pragma("clang loop unroll(full)") for (int i = 0; i < (n); i++)
#else
#define TIMES(i, n) _Pragma("GCC unroll 32") for (int i = 0; i < (n); i++)
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define OUT_OF_LINE static __attribute__((noinline, cold, unused))

/* 32 bits of a packed operand: a float, or a pair of bf16 (the first in the lower half). */
typedef float __attribute__((may_alias)) unit;

#if defined(__AVX512F__)

enum { VL = 16 };
typedef __m512 vec;
static inline vec vec_load(const unit *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vec_store(unit *p, vec v)
{
    _mm512_storeu_ps(p, v);
}
static inline vec vec_all(float x)
{
    return _mm512_set1_ps(x);
}
static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

#elif defined(__AVX2__) && defined(__FMA__)

enum { VL = 8 };
typedef __m256 vec;
static inline vec vec_load(const unit *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vec_store(unit *p, vec v)
{
    _mm256_storeu_ps(p, v);
}
static inline vec vec_all(float x)
{
    return _mm256_set1_ps(x);
}
static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

#else

enum { VL = 4 };
typedef float vec __attribute__((vector_size(16)));
static inline vec vec_load(const unit *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vec_store(unit *p, vec v)
{
    memcpy(p, &v, sizeof v);
}
static inline vec vec_all(float x)
{
    return (vec){x, x, x, x};
}
static inline vec vec_fma(vec a, vec b, vec c)
{
    return a * b + c;
}

#endif

/* c + a0 b0 + a1 b1 in each lane, for pairs of bf16. */
#if defined(__AVX512BF16__)
enum { BF16_PAIRS = 1 };
static inline vec vec_fma_bf16(vec a, vec b, vec c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}
#else
enum { BF16_PAIRS = 0 };
static inline vec vec_fma_bf16(vec a, vec b, vec c) /* never called */
{
    (void)a, (void)b;
    return c;
}
#endif

/* Zips the lower (upper) halves of two vectors: a0 b0 a1 b1 ... */
#if defined(__AVX512F__)
#define VEC_ZIP(name, first)                                                                       \
    static inline vec name(vec a, vec b)                                                           \
    {                                                                                              \
        return __builtin_shufflevector(a, b, first, first + 16, first + 1, first + 17, first + 2,  \
                                       first + 18, first + 3, first + 19, first + 4, first + 20,   \
                                       first + 5, first + 21, first + 6, first + 22, first + 7,    \
                                       first + 23);                                                \
    }
#elif defined(__AVX2__) && defined(__FMA__)
#define VEC_ZIP(name, first)                                                                       \
    static inline vec name(vec a, vec b)                                                           \
    {                                                                                              \
        return __builtin_shufflevector(a, b, first, first + 8, first + 1, first + 9, first + 2,    \
                                       first + 10, first + 3, first + 11);                         \
    }
#else
#define VEC_ZIP(name, first)                                                                       \
    static inline vec name(vec a, vec b)                                                           \
    {                                                                                              \
        return __builtin_shufflevector(a, b, first, first + 4, first + 1, first + 5);              \
    }
#endif
VEC_ZIP(vec_zip_low, 0)
VEC_ZIP(vec_zip_high, VL / 2)

/* Transposes VL vectors in place: log2 VL times, each half of them zipped with the other half. */
ALWAYS_INLINE void vec_transpose(vec v[VL])
{
    vec w[VL];
    TIMES(stage, VL == 16 ? 4 : VL == 8 ? 3 : 2)
    {
        TIMES(i, VL / 2)
        {
            w[2 * i] = vec_zip_low(v[i], v[i + VL / 2]);
            w[2 * i + 1] = vec_zip_high(v[i], v[i + VL / 2]);
        }
        TIMES(i, VL) v[i] = w[i];
    }
}

#endif
