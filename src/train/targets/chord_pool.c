/* See train/targets/chord_pool.h. */
#include "train/targets/chord_pool.h"

#include <inttypes.h>

#include "core/error.h"
#include "dev/ops.h"

enum { TERMS_MAX = sizeof((wd_combine_args){0}).x / sizeof(float *) };

wd_status wd__chord_pool_open(wd_chord_pool *out, wd_device *device, int64_t capacity,
                              int64_t state_count, wd_err *err)
{
    const size_t bytes = (size_t)(capacity * state_count) * sizeof(float);
    *out = (wd_chord_pool){.capacity = capacity, .state_count = state_count};
    WD_TRY(wd_device_alloc((void **)&out->latents, device, bytes, "chords", err));
    return wd_device_alloc((void **)&out->velocity, device, bytes, "chords", err);
}

void wd__chord_pool_close(wd_chord_pool *pool, wd_device *device)
{
    wd_device_free(device, pool->latents);
    wd_device_free(device, pool->velocity);
}

int64_t wd__chord_pool_place(const wd_chord_pool *pool, int64_t number)
{
    WD_REQUIRE(number >= 0 && number < pool->count && number >= pool->count - pool->capacity,
               "chord %" PRId64 " is not among the %" PRId64 " before chord %" PRId64, number,
               pool->capacity, pool->count);
    return number % pool->capacity;
}

/* What a chord is the sum of. */
typedef struct terms {
    const float *x[2 * WD_CHORD_STEPS_MAX + 2];
    float factor[2 * WD_CHORD_STEPS_MAX + 2];
    int64_t count;
} terms;

static void add_term(terms *t, const float *x, float factor)
{
    t->x[t->count] = x;
    t->factor[t->count++] = factor;
}

/* Adds `factor` times the block's chord. */
static void add_block(terms *t, const wd_chord *chord, const wd_chord_block *block, float factor)
{
    for (int64_t i = 0; i < chord->length; i++)
        add_term(t, block->velocity[i], factor * chord->weight[i]);
}

/* y = the sum of the terms, added in their order, as many at a time as one launch of `combine`
 * takes. */
static void add_up(float *y, const terms *t, int64_t width, wd_queue *queue)
{
    for (int64_t done = 0; done < t->count;) {
        wd_combine_args sum = {.y = y, .count = width};
        if (done) {
            sum.x[0] = y;
            sum.factor[0] = 1;
            sum.terms = 1;
        }
        for (; sum.terms < TERMS_MAX && done < t->count; done++) {
            sum.x[sum.terms] = t->x[done];
            sum.factor[sum.terms++] = t->factor[done];
        }
        wd_op_combine(queue, &sum);
    }
}

void wd__chord_pool_add(wd_chord_pool *pool, const wd_chord *chord, const wd_chord_block *block,
                        const wd_chord_block *twin, wd_queue *queue)
{
    const int64_t n = pool->state_count, at = pool->count++ % pool->capacity * n;
    const float gain = chord->gain;
    terms t = {.count = 0};
    add_block(&t, chord, block, 1 + gain);
    if (gain > 0) {
        add_block(&t, chord, twin, -gain);
        add_term(&t, block->latents, -gain / chord->sigma);
        add_term(&t, twin->latents, gain / chord->sigma);
    }
    wd_queue_copy(queue, pool->latents + at, block->latents, (size_t)n * sizeof(float));
    add_up(pool->velocity + at, &t, n, queue);
}
