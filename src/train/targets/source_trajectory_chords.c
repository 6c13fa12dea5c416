/* Chords of the trajectories' blocks, as batches need them: see train/targets/chord.h. */
#include <inttypes.h>

#include "core/require.h"
#include "train/targets/source_trajectory_impl.h"

/* Chords that become known for the samples of one step. */
static int64_t chords_of_step(const wd_source_options *o)
{
    return o->step_samples / o->reuse + 1;
}

int64_t wd_trajectory_source_chord_targets(const wd_source_options *o)
{
    /* From the first target of a step's first chord to the end of the round of the next step's
     * last one, each slot has at most L targets for each of its chords in between, and not more
     * than 2 L of blocks that began before or end later. These are the chords of two steps and of
     * the round's rest, which is not more than slots / L + 1. Those of a chord's pair are in the
     * same rounds, all of which there is room for. */
    const int64_t length = wd_chord_length(&o->trajectory);
    return length * (2 * chords_of_step(o) + 2 * o->trajectory.slots + 1) + 2 * o->trajectory.slots;
}

wd_status wd_trajectory_source_open_chords(wd_trajectory_source *s, wd_err *err)
{
    const wd_source_options *o = &s->options;
    /* chords that are drawn again, those of two steps, and those that a checkpoint adds to complete
     * the round */
    const int64_t capacity = o->replay + 2 * chords_of_step(o) + o->trajectory.slots + 1;
    return wd_chord_pool_open(&s->chords, wd_queue_device(s->queue), capacity,
                              o->batches.state_count, err);
}

/* The block of these targets, which `queue` waits for. */
static wd_chord_block block_of(wd_trajectory_source *s, const int64_t *target, int64_t length)
{
    const wd_targets *ring = &s->ring;
    const int64_t made = s->base.targets, first = target[0], last = target[length - 1];
    wd_chord_block block;
    WD_REQUIRE(last < made && first >= made - ring->capacity,
               "targets %" PRId64 " to %" PRId64 " are not among the %" PRId64
               " before target %" PRId64,
               first, last, ring->capacity, made);
    wd_targets_await(&s->ring, last + 1, s->queue);
    for (int64_t i = 0; i < length; i++) {
        const int64_t ring_index = wd_targets_ring_index(ring, target[i]);
        if (s->exchange.gathers) wd_trajectory_source_take_until(s, s->exchange.gather[ring_index]);
        block.velocity[i] = ring->velocity + ring_index * ring->state_count;
    }
    block.latents = ring->latents + wd_targets_ring_index(ring, first) * ring->state_count;
    return block;
}

void wd_trajectory_source_add_chords(wd_trajectory_source *s, int64_t end)
{
    while (s->chords.count < end) {
        const wd_chord c = wd_chord_at(&s->options.trajectory, s->chords.count);
        const wd_chord_block block = block_of(s, c.target, c.length);
        const wd_chord_block twin =
            c.gain > 0 ? block_of(s, c.twin, c.length) : (wd_chord_block){0};
        wd_chord_pool_add(&s->chords, &c, &block, &twin, s->queue);
    }
}
