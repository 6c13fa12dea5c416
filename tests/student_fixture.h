/* Functions of the student's tests: a small model, and filling and reading its buffers. */
#ifndef WD_TESTS_STUDENT_FIXTURE_H
#define WD_TESTS_STUDENT_FIXTURE_H

#include "testing.h"

#include "core/random.h"
#include "dev/sim/sim.h"
#include "train/network/params.h"

/* A model with 3 heads of 8, so that most products of sizes are no multiples of WD_PARAMS_ALIGN. */
static inline wd_dit_config small_config(void)
{
    return (wd_dit_config){.in_channels = 4,
                           .out_channels = 4,
                           .heads = 3,
                           .head_dim = 8,
                           .ffn_dim = 40,
                           .layers = 2,
                           .freq_dim = 16,
                           .text_dim = 12,
                           .patch = {1, 2, 2},
                           .rope_max_seq_len = 64,
                           .cross_attn_norm = true,
                           .eps = 1e-6};
}

/* A device with one queue. */
typedef struct bench {
    wd_device *device;
    wd_queue *queue;
} bench;

static inline bench bench_on(wd_status (*open)(wd_device **, int, wd_err *), int threads)
{
    bench b;
    wd_err err;
    wd_test_ok(open(&b.device, threads, &err), &err);
    wd_test_ok(wd_queue_open(&b.queue, b.device, &err), &err);
    return b;
}

/* For bench_on: a simulated GPU of 1 GiB, for tests of what lies in host memory. */
static inline wd_status open_sim(wd_device **out, int threads, wd_err *err)
{
    (void)threads;
    return wd_device_open_sim(out, &(wd_sim_options){.bytes = (size_t)1 << 30}, err);
}

static inline void bench_close(bench *b)
{
    wd_queue_close(b->queue);
    wd_device_close(b->device);
}

/* `count` floats of device memory, as a new host array. */
static inline float *read_floats(const bench *b, const float *from, int64_t count)
{
    float *out;
    wd_err err;
    wd_test_ok(wd_alloc((void **)&out, (size_t)count, sizeof *out, "test values", &err), &err);
    wd_queue_copy_and_wait(b->queue, out, from, (size_t)count * sizeof *out);
    wd_queue_wait(b->queue);
    return out;
}

/* Fills the tensors of a buffer, without the gaps between them, with scaled normal numbers. */
static inline void fill_values(const bench *b, const wd_params *params, void *to, wd_dtype type,
                               uint64_t seed, float scale, float shift)
{
    float *flat = calloc((size_t)params->count, sizeof *flat);
    for (int64_t line = 0; line < params->table.count; line++) {
        wd_tensor t = wd_params_tensor(params, WD_PARAMS_P, line);
        int64_t n = wd_tensor_count(&t);
        float *values = flat + params->offset[line];
        wd_random_normal(values, n, (wd_random){seed, WD_RANDOM_TEST, (uint64_t)line}, 0);
        for (int64_t i = 0; i < n; i++) values[i] = values[i] * scale + shift;
    }
    for (int64_t i = 0; type == WD_BF16 && i < params->count; i++)
        memcpy((uint16_t *)flat + i, &(uint16_t){wd_f32_to_bf16(flat[i])}, sizeof(uint16_t));
    wd_queue_copy_and_wait(b->queue, to, flat, wd_dtype_size(type, params->count));
    wd_queue_wait(b->queue);
    free(flat);
}

/* After P is filled, wd_params_show(P) before a pass. */
static inline void fill_buffer(const bench *b, wd_params *params, wd_params_buffer buffer,
                               uint64_t seed, float scale, float shift)
{
    const wd_dtype type = buffer == WD_PARAMS_G ? wd__params_grad_type(params) : WD_F32;
    wd_params_clear_whole(params, buffer, b->queue);
    fill_values(b, params, wd_params_whole(params, buffer), type, seed, scale, shift);
    wd_params_take(params, buffer, b->queue);
}

/* A buffer in F32, wherever it is, as a new host array. Gradients are overwritten. */
static inline float *read_buffer(const bench *b, wd_params *params, wd_params_buffer buffer)
{
    wd_params_collect(params, buffer, b->queue);
    float *out = read_floats(b, wd_params_whole(params, buffer), params->count);
    wd_params_release(params, b->queue);
    return out;
}

/* The tensors of a checkpoint: one network's and `count` others; one network's alone. */
#define BOTH(params_, other_, count)                                                               \
    (&(wd_checkpoint_tensors){(wd_params *[]){params_}, 1, other_, count})
#define ONLY(params_) BOTH(params_, NULL, 0)

/* Whether two benches' flat buffers hold the same values. Gradients are overwritten. */
static inline bool same_buffer(const bench *b, wd_params *x, wd_params *y, wd_params_buffer buffer)
{
    float *a = read_buffer(b, x, buffer);
    float *c = read_buffer(b, y, buffer);
    bool same = x->count == y->count && !memcmp(a, c, (size_t)x->count * sizeof *a);
    wd_free(a);
    wd_free(c);
    return same;
}

#endif
