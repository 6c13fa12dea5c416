/* Elements of arrays of any dtype as fp32, one or eight at a time. Eight whose address allows it
 * are moved 16 bytes at a time. */
#ifndef WD_DEV_CUDA_KERNELS_ELEMENTS_CUH
#define WD_DEV_CUDA_KERNELS_ELEMENTS_CUH

#include "core/dtype.h"
#include "dev/convert.h"
#include "dev/cuda/kernels/thread.cuh"

enum { EIGHT = 8 };

/* for (i = 0; i < EIGHT; i++), without a loop: what a thread has of an array stays in registers. */
#define EACH_OF_EIGHT(i) WD_UNROLL for (int i = 0; i < EIGHT; i++)

WD_DEVICE float widened(uint32_t bits16, wd_dtype type)
{
    return type == WD_BF16 ? float_of(bits16 << 16) : f16_to_f32((uint16_t)bits16);
}

WD_DEVICE uint32_t narrowed(float value, wd_dtype type)
{
    return type == WD_BF16 ? bf16_bits(value) >> 16 : f32_to_f16(value);
}

WD_DEVICE float load_one(const void *data, wd_dtype type, int64_t at)
{
    if (type == WD_F32) return ((const float *)data)[at];
    return widened(((const uint16_t *)data)[at], type);
}

WD_DEVICE void store_one(void *data, wd_dtype type, int64_t at, float value)
{
    if (type == WD_F32)
        ((float *)data)[at] = value;
    else
        ((uint16_t *)data)[at] = (uint16_t)narrowed(value, type);
}

WD_DEVICE bool is_aligned(const void *p)
{
    return (uintptr_t)p % sizeof(wd_sixteen) == 0;
}

WD_DEVICE const void *element(const void *data, wd_dtype type, int64_t at)
{
    return (const char *)data + at * (type == WD_F32 ? 4 : 2);
}

/* Eight elements as they are in memory: a word each, or two of 16 bits in a word, the first of them
 * in its lower half. A thread that needs several eights fetches all of them before it widens one:
 * widening waits for the fetch. */
struct eight {
    uint32_t word[EIGHT];
};

/* Elements [at, at + n), n <= 8; zeros beyond n. */
WD_DEVICE eight fetch_eight(const void *data, wd_dtype type, int64_t at, int n)
{
    eight e = {{0}};
    const void *from = element(data, type, at);
    if (n == EIGHT && is_aligned(from)) {
        const wd_sixteen first = ((const wd_sixteen *)from)[0];
        e.word[0] = first.x, e.word[1] = first.y, e.word[2] = first.z, e.word[3] = first.w;
        if (type == WD_F32) {
            const wd_sixteen second = ((const wd_sixteen *)from)[1];
            e.word[4] = second.x, e.word[5] = second.y, e.word[6] = second.z, e.word[7] = second.w;
        }
    } else if (type == WD_F32) {
        EACH_OF_EIGHT (i)
            if (i < n) e.word[i] = ((const uint32_t *)from)[i];
    } else {
        EACH_OF_EIGHT (i)
            if (i < n) e.word[i / 2] |= (uint32_t)((const uint16_t *)from)[i] << i % 2 * 16;
    }
    return e;
}

/* One branch for all eight: with one for each nvcc's code jumps eight times. */
WD_DEVICE void widen_eight(float v[EIGHT], const eight &e, wd_dtype type)
{
    if (type == WD_F32) {
        EACH_OF_EIGHT (i) v[i] = float_of(e.word[i]);
    } else if (type == WD_BF16) {
        EACH_OF_EIGHT (i) v[i] = widened(e.word[i / 2] >> i % 2 * 16 & 0xffffu, WD_BF16);
    } else {
        EACH_OF_EIGHT (i) v[i] = widened(e.word[i / 2] >> i % 2 * 16 & 0xffffu, WD_F16);
    }
}

WD_DEVICE void load_eight(float v[EIGHT], const void *data, wd_dtype type, int64_t at, int n)
{
    widen_eight(v, fetch_eight(data, type, at, n), type);
}

/* The other way round. */
WD_DEVICE eight narrow_eight(const float v[EIGHT], wd_dtype type)
{
    eight e = {{0}};
    if (type == WD_F32) {
        EACH_OF_EIGHT (i) e.word[i] = bits_of(v[i]);
    } else if (type == WD_BF16) {
        EACH_OF_EIGHT (i) e.word[i / 2] |= narrowed(v[i], WD_BF16) << i % 2 * 16;
    } else {
        EACH_OF_EIGHT (i) e.word[i / 2] |= narrowed(v[i], WD_F16) << i % 2 * 16;
    }
    return e;
}

/* Elements [at, at + n) = v, n <= 8. */
WD_DEVICE void store_eight(void *data, wd_dtype type, int64_t at, const float v[EIGHT], int n)
{
    void *to = (void *)element(data, type, at);
    const eight e = narrow_eight(v, type);
    if (n == EIGHT && is_aligned(to)) {
        wd_sixteen *sixteens = (wd_sixteen *)to;
        sixteens[0] = wd_sixteen{e.word[0], e.word[1], e.word[2], e.word[3]};
        if (type == WD_F32) sixteens[1] = wd_sixteen{e.word[4], e.word[5], e.word[6], e.word[7]};
    } else if (type == WD_F32) {
        EACH_OF_EIGHT (i)
            if (i < n) ((uint32_t *)to)[i] = e.word[i];
    } else {
        EACH_OF_EIGHT (i)
            if (i < n) ((uint16_t *)to)[i] = (uint16_t)(e.word[i / 2] >> i % 2 * 16);
    }
}

/* How many of eight elements from `at` on are below `end`. */
WD_DEVICE int eight_below(int64_t at, int64_t end)
{
    return end - at < EIGHT ? (int)(end - at) : EIGHT;
}

#endif
