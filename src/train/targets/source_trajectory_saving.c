/* How the trajectory source stores its targets (train/targets/target_store.h).
 *
 * Targets are stored as bf16, and what is stored is what is learnt: a state is rounded when it has
 * come into the ring, before the teacher and the student see it, and a velocity when it is there,
 * before the trajectory moves on along it. So a run from the store has the same targets to the bit.
 *
 * Data flow: ring -> (rounded) values in bf16 on the device -> ring, and (a queue of its own) ->
 * host staging -> the writer, when the staging's turn comes again. */
#include "core/memory.h"
#include "dev/ops.h"
#include "train/targets/source_trajectory_impl.h"

wd_status wd__trajectory_source_open_saving(wd_trajectory_source *s, wd_err *err)
{
    wd_target_saving *k = &s->saving;
    const wd_source_options *o = &s->options;
    wd_device *device = wd_queue_device(s->home);
    const char *what = "targets to store";
    if (!o->store_to) return WD_OK;
    k->places = wd_device_places(device, WD_WINDOWS_UNDER_WAY);
    const size_t values = 2 * (size_t)(o->window * s->ring.state_count);
    const size_t bytes = (size_t)k->places * values * sizeof *k->rounded;
    WD_TRY(wd__target_writer_open(&k->writer, o->store_to, &o->trajectory, err));
    WD_TRY(wd_queue_open(&k->queue, device, err));
    WD_TRY(wd_device_alloc((void **)&k->rounded, device, bytes, what, err));
    WD_TRY(wd_host_alloc((void **)&k->staging, device, bytes, what, err));
    WD_TRY(wd_alloc((void **)&k->delivered, (size_t)o->trajectory.slots, sizeof *k->delivered, what,
                    err));
    for (int64_t i = 0; i < o->trajectory.slots; i++)
        WD_TRY(wd_event_open(&k->delivered[i], device, err));
    for (int i = 0; i < WD_WINDOWS_UNDER_WAY; i++)
        WD_TRY(wd_event_open(&k->copied[i], device, err));
    return WD_OK;
}

void wd__trajectory_source_close_saving(wd_trajectory_source *s)
{
    wd_target_saving *k = &s->saving;
    if (k->queue) wd_queue_wait(k->queue);
    for (int64_t i = 0; k->delivered && i < s->options.trajectory.slots; i++)
        wd_event_close(k->delivered[i]);
    for (int i = 0; i < WD_WINDOWS_UNDER_WAY; i++) wd_event_close(k->copied[i]);
    wd_free(k->delivered);
    wd_device_free(wd_queue_device(s->home), k->rounded);
    wd_host_free(wd_queue_device(s->home), k->staging);
    wd_queue_close(k->queue);
    wd__target_writer_close(k->writer);
}

/* The place of the window under way in `rounded` and `staging`. */
static int64_t place_of(const wd_trajectory_source *s)
{
    return s->window.number % s->saving.places;
}

/* The values of the window's state number `state`, of its latents or its velocity, [state_count].
 */
static uint16_t *rounded_at(const wd_trajectory_source *s, int64_t state, bool velocity)
{
    const int64_t target = place_of(s) * s->options.window + state;
    return s->saving.rounded + (2 * target + velocity) * s->ring.state_count;
}

/* Rounds x [state_count] to bf16, and keeps the values in `rounded`. */
static void round_state(uint16_t *rounded, float *x, int64_t count, wd_queue *queue)
{
    wd_op_cast(
        queue,
        &(wd_cast_args){
            .to = rounded, .from = x, .to_type = WD_BF16, .from_type = WD_F32, .count = count});
    wd_op_cast(
        queue,
        &(wd_cast_args){
            .to = x, .from = rounded, .to_type = WD_F32, .from_type = WD_BF16, .count = count});
}

void wd__trajectory_source_round_states(wd_trajectory_source *s, const int64_t *states,
                                        int64_t count)
{
    const int64_t n = s->ring.state_count;
    for (int64_t i = 0; i < count; i++)
        round_state(rounded_at(s, states[i], false),
                    s->ring.latents + (s->window.ring_index + states[i]) * n, n, s->home);
}

void wd__trajectory_source_round_velocities(wd_trajectory_source *s)
{
    wd_target_saving *k = &s->saving;
    wd_target_window *w = &s->window;
    const int64_t n = s->ring.state_count, place = place_of(s);
    const size_t values = 2 * (size_t)(s->options.window * n);
    for (int64_t i = 0, end; i < w->count; i = end) {
        wd_event *there = w->delivered[i], *rounded = k->delivered[w->info[i].slot];
        wd_event_wait_on(k->queue, there);
        for (end = i; end < w->count && w->delivered[end] == there; end++) {
            round_state(rounded_at(s, end, true), s->ring.velocity + (w->ring_index + end) * n, n,
                        k->queue);
            w->delivered[end] = rounded;
        }
        wd_event_record(rounded, k->queue);
    }
    wd_queue_copy(k->queue, k->staging + (size_t)place * values,
                  k->rounded + (size_t)place * values,
                  2 * (size_t)(w->count * n) * sizeof(uint16_t));
    wd_event_record(k->copied[place], k->queue);
    k->waiting[place] = w->count;
}

/* Gives the targets of that place to the writer. */
static wd_status take_place(wd_trajectory_source *s, int64_t place, wd_err *err)
{
    wd_target_saving *k = &s->saving;
    const int64_t n = 2 * s->ring.state_count;
    const uint16_t *from = k->staging + place * s->options.window * n;
    if (!k->waiting[place]) return WD_OK;
    wd_event_wait(k->copied[place]);
    const int64_t count = k->waiting[place];
    k->waiting[place] = 0;
    if (wd_device_is_dry(wd_queue_device(s->home))) return WD_OK;
    for (int64_t i = 0; i < count; i++) WD_TRY(wd__target_writer_put(k->writer, from + i * n, err));
    return WD_OK;
}

wd_status wd__trajectory_source_save_window(wd_trajectory_source *s, wd_err *err)
{
    return s->saving.writer ? take_place(s, place_of(s), err) : WD_OK;
}

wd_status wd__trajectory_source_save_all(wd_trajectory_source *s, wd_err *err)
{
    wd_target_saving *k = &s->saving;
    if (!k->writer) return WD_OK;
    for (int64_t i = 0; i < k->places; i++)
        WD_TRY(take_place(s, (s->window.number + i) % k->places, err));
    if (wd_device_is_dry(wd_queue_device(s->home))) return WD_OK;
    return wd__target_writer_flush(k->writer, err);
}
