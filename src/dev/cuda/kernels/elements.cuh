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

/* v = elements [at, at + n), n <= 8; zeros beyond n. */
WD_DEVICE void load_eight(float v[EIGHT], const void *data, wd_dtype type, int64_t at, int n)
{
    const void *from = element(data, type, at);
    if (n == EIGHT && is_aligned(from)) {
        const wd_sixteen first = ((const wd_sixteen *)from)[0];
        const uint32_t words[4] = {first.x, first.y, first.z, first.w};
        if (type == WD_F32) {
            const wd_sixteen second = ((const wd_sixteen *)from)[1];
            const uint32_t more[4] = {second.x, second.y, second.z, second.w};
            WD_UNROLL for (int i = 0; i < 4; i++)
            {
                v[i] = float_of(words[i]);
                v[i + 4] = float_of(more[i]);
            }
        } else {
            EACH_OF_EIGHT (i) v[i] = widened(words[i / 2] >> i % 2 * 16 & 0xffffu, type);
        }
        return;
    }
    EACH_OF_EIGHT (i) v[i] = i < n ? load_one(from, type, i) : 0;
}

/* Elements [at, at + n) = v, n <= 8. */
WD_DEVICE void store_eight(void *data, wd_dtype type, int64_t at, const float v[EIGHT], int n)
{
    void *to = (void *)element(data, type, at);
    if (n == EIGHT && is_aligned(to)) {
        uint32_t words[EIGHT];
        if (type == WD_F32) {
            EACH_OF_EIGHT (i) words[i] = bits_of(v[i]);
            ((wd_sixteen *)to)[1] = wd_sixteen{words[4], words[5], words[6], words[7]};
        } else {
            WD_UNROLL for (int i = 0; i < 4; i++) words[i] =
                narrowed(v[2 * i], type) | narrowed(v[2 * i + 1], type) << 16;
        }
        ((wd_sixteen *)to)[0] = wd_sixteen{words[0], words[1], words[2], words[3]};
        return;
    }
    EACH_OF_EIGHT (i)
        if (i < n) store_one(to, type, i, v[i]);
}

/* How many of eight elements from `at` on are below `end`. */
WD_DEVICE int eight_below(int64_t at, int64_t end)
{
    return end - at < EIGHT ? (int)(end - at) : EIGHT;
}

#endif
