/* Arrays of any length: a thread has eight elements, the x-th block 8 times its threads.
 *
 * Of arrays of 16 bits the eight follow one another: 16 bytes. Of fp32 a thread has two fours of 16
 * bytes: a block's first fours lie side by side, then its second ones, so that what a warp reads or
 * writes at once is contiguous. With eights in a row it would be every other 16 bytes, and each
 * store would fill half of the 32 bytes in which memory is written.
 */
#ifndef WD_DEV_CUDA_KERNELS_FLAT_CUH
#define WD_DEV_CUDA_KERNELS_FLAT_CUH

#include "dev/cuda/kernels/elements.cuh"

enum { FOUR = 4 };

/* The first of the thread's elements, where all eight follow one another. */
WD_DEVICE int64_t flat_first(void)
{
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * EIGHT;
}

/* The elements [at, at + n[0]) and [at + gap, at + gap + n[1]) of a thread: v[0..4) and v[4..8). */
struct flat {
    int64_t at;
    int gap, n[2];
    bool apart; /* gap is not four */
};

WD_DEVICE int four_below(int64_t at, int64_t end)
{
    return end - at >= FOUR ? FOUR : end > at ? (int)(end - at) : 0;
}

/* `type`: WD_F32 where one of the kernel's arrays has it. */
WD_DEVICE flat flat_of(int64_t count, wd_dtype type)
{
    const int64_t block = (int64_t)blockIdx.x * blockDim.x * EIGHT;
    flat f;
    f.apart = type == WD_F32;
    f.at = block + (int64_t)threadIdx.x * (f.apart ? (int)FOUR : (int)EIGHT);
    f.gap = f.apart ? (int)blockDim.x * FOUR : FOUR;
    f.n[0] = four_below(f.at, count);
    f.n[1] = four_below(f.at + f.gap, count);
    return f;
}

WD_DEVICE bool flat_is_empty(const flat &f)
{
    return f.n[0] == 0;
}

/* Whether both fours are whole, and one instruction can move each of them. */
WD_DEVICE bool flat_is_whole(const flat &f, const void *first, wd_dtype type)
{
    const unsigned bytes = type == WD_F32 ? 16 : 8;
    return f.n[0] == FOUR && f.n[1] == FOUR && (uintptr_t)first % bytes == 0;
}

/* Zeros beyond the thread's elements. */
WD_DEVICE eight flat_fetch(const void *data, wd_dtype type, const flat &f)
{
    if (!f.apart) return fetch_eight(data, type, f.at, f.n[0] + f.n[1]);
    const void *first = element(data, type, f.at), *second = element(data, type, f.at + f.gap);
    eight e = {{0}};
    if (!flat_is_whole(f, first, type)) {
        EACH_OF_EIGHT (i) {
            if (i % FOUR >= f.n[i / FOUR]) continue;
            const void *from = i < FOUR ? first : second;
            if (type == WD_F32)
                e.word[i] = ((const uint32_t *)from)[i % FOUR];
            else
                e.word[i / 2] |= (uint32_t)((const uint16_t *)from)[i % FOUR] << i % 2 * 16;
        }
    } else if (type == WD_F32) {
        const wd_sixteen a = *(const wd_sixteen *)first, b = *(const wd_sixteen *)second;
        e = eight{{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else {
        const wd_eight_bytes a = *(const wd_eight_bytes *)first;
        const wd_eight_bytes b = *(const wd_eight_bytes *)second;
        e = eight{{a.x, a.y, b.x, b.y}};
    }
    return e;
}

WD_DEVICE void flat_load(float v[EIGHT], const void *data, wd_dtype type, const flat &f)
{
    widen_eight(v, flat_fetch(data, type, f), type);
}

/* Of two arrays: both are fetched before one is widened. */
WD_DEVICE void flat_load_two(float v[EIGHT], const void *of_v, float w[EIGHT], const void *of_w,
                             wd_dtype type, const flat &f)
{
    const eight a = flat_fetch(of_v, type, f), b = flat_fetch(of_w, type, f);
    widen_eight(v, a, type);
    widen_eight(w, b, type);
}

/* Of arrays of 16 bits together with fp32 ones, or of fp32: f.apart. */
WD_DEVICE void flat_put(void *data, wd_dtype type, const flat &f, const eight &e)
{
    void *first = (void *)element(data, type, f.at);
    void *second = (void *)element(data, type, f.at + f.gap);
    if (!flat_is_whole(f, first, type)) {
        EACH_OF_EIGHT (i) {
            if (i % FOUR >= f.n[i / FOUR]) continue;
            void *to = i < FOUR ? first : second;
            if (type == WD_F32)
                ((uint32_t *)to)[i % FOUR] = e.word[i];
            else
                ((uint16_t *)to)[i % FOUR] = (uint16_t)(e.word[i / 2] >> i % 2 * 16);
        }
    } else if (type == WD_F32) {
        *(wd_sixteen *)first = wd_sixteen{e.word[0], e.word[1], e.word[2], e.word[3]};
        *(wd_sixteen *)second = wd_sixteen{e.word[4], e.word[5], e.word[6], e.word[7]};
    } else {
        *(wd_eight_bytes *)first = wd_eight_bytes{e.word[0], e.word[1]};
        *(wd_eight_bytes *)second = wd_eight_bytes{e.word[2], e.word[3]};
    }
}

WD_DEVICE void flat_store(void *data, wd_dtype type, const flat &f, const float v[EIGHT])
{
    if (f.apart)
        flat_put(data, type, f, narrow_eight(v, type));
    else
        store_eight(data, type, f.at, v, f.n[0] + f.n[1]);
}

#endif
