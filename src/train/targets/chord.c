/* See train/targets/chord.h. */
#include "train/targets/chord.h"

#include <inttypes.h>

#include "core/error.h"
#include "core/random.h"
#include "model/sampling/schedule.h"

/* A slot's blocks end every L rounds, and slot j began at round j mod K, so the slots whose blocks
 * end in `round` are every L-th from this one on. */
static int64_t first_slot(const wd_trajectory_options *o, int64_t round)
{
    return (round + 1) % wd_chord_length(o);
}

/* Whether the slot, one of those above, has made a block's steps by then. */
static bool has_block(const wd_trajectory_options *o, int64_t round, int64_t slot)
{
    return slot % o->steps + wd_chord_length(o) <= round + 1;
}

/* From this round on all slots have made a block's steps. */
static int64_t ramp_end(const wd_trajectory_options *o)
{
    return o->steps - 1 + wd_chord_length(o);
}

/* Blocks that end in `round`. */
static int64_t chords_of_round(const wd_trajectory_options *o, int64_t round)
{
    const int64_t length = wd_chord_length(o), first = first_slot(o, round);
    int64_t count = 0;
    if (round >= ramp_end(o)) return first < o->slots ? (o->slots - first - 1) / length + 1 : 0;
    for (int64_t slot = first; slot < o->slots; slot += length) count += has_block(o, round, slot);
    return count;
}

int64_t wd__chord_first(const wd_trajectory_options *options, int64_t round)
{
    const int64_t length = wd_chord_length(options), ramp = ramp_end(options);
    int64_t total = 0;
    for (int64_t r = 0; r < round && r < ramp; r++) total += chords_of_round(options, r);
    if (round <= ramp) return total;
    total += (round - ramp) / length * options->slots; /* each slot ends one block in L rounds */
    for (int64_t r = round - (round - ramp) % length; r < round; r++)
        total += chords_of_round(options, r);
    return total;
}

/* The round of chord `number`; *index: which of that round's it is. */
static int64_t round_of(int64_t *index, const wd_trajectory_options *o, int64_t number)
{
    const int64_t length = wd_chord_length(o), ramp = ramp_end(o),
                  before = wd__chord_first(o, ramp);
    int64_t round = 0, left = number;
    if (number >= before) {
        round = ramp + (number - before) / o->slots * length;
        left = (number - before) % o->slots;
    }
    while (left >= chords_of_round(o, round)) left -= chords_of_round(o, round++);
    *index = left;
    return round;
}

/* The slot of a round's chord number `index`. */
static int64_t slot_of(const wd_trajectory_options *o, int64_t round, int64_t index)
{
    int64_t slot = first_slot(o, round);
    if (round >= ramp_end(o)) return slot + index * wd_chord_length(o);
    while (!has_block(o, round, slot) || index-- > 0) slot += wd_chord_length(o);
    return slot;
}

/* The round, slot and length of chord `number`. */
static wd_chord find(const wd_trajectory_options *o, int64_t number)
{
    int64_t index;
    WD_REQUIRE(number >= 0 && wd_chord_length(o) <= WD_CHORD_STEPS_MAX,
               "there is no chord %" PRId64 " of %" PRId64 " steps", number, wd_chord_length(o));
    wd_chord c = {.round = round_of(&index, o, number), .length = wd_chord_length(o)};
    c.slot = slot_of(o, c.round, index);
    return c;
}

/* The number of target `i` of the block that ends with the chord's, in its slot or its twin's. */
static int64_t target_of(const wd_trajectory_options *o, const wd_chord *c, int64_t slot, int64_t i)
{
    return wd__trajectory_number(o, c->round - c->length + 1 + i, slot);
}

wd_target_info wd__chord_begin(const wd_trajectory_options *options, int64_t number)
{
    const wd_chord c = find(options, number);
    return wd__trajectory_target(options, target_of(options, &c, c.slot, 0));
}

wd_chord_point wd__chord_point_at(const wd_trajectory_options *options, const wd_target_info *begin,
                                  int64_t step)
{
    const int64_t steps = options->student_steps, each = steps / wd_chords(options);
    if (step == 0) return (wd_chord_point){.timestep = begin->timestep};
    const int64_t before = begin->step / wd_chord_length(options) * each;
    const double u = 1 - (double)(before + step) / (double)steps;
    const float sigma = (float)wd_flow_shift(u, options->flow_shift);
    return (wd_chord_point){sigma - begin->sigma, wd__trajectory_timestep(options, sigma)};
}

wd_chord_point wd__chord_point_of(const wd_trajectory_options *options, const wd_target_info *begin,
                                  int64_t sample)
{
    const int64_t each = options->student_steps / wd_chords(options);
    const wd_random key = {
        .seed = options->seed, .stream = WD_RANDOM_CHORD_POINT, .index = (uint64_t)sample};
    const int64_t step = each > 1 ? (int64_t)wd_random_below(key, 0, (uint64_t)each) : 0;
    return wd__chord_point_at(options, begin, step);
}

float wd__chord_loss_weight(const wd_trajectory_options *options, const wd_target_info *begin)
{
    const int64_t round = begin->round + wd_chord_length(options) - 1;
    const int64_t last = wd__trajectory_number(options, round, begin->slot);
    const float end = wd__trajectory_target(options, last).sigma_next;
    return (float)wd_chords(options) * (begin->sigma - end);
}

void wd__chord_shape(wd_chord *c, const float *sigma, double diversity_gain)
{
    const double begin = (double)sigma[0], end = (double)sigma[c->length];
    for (int64_t i = 0; i < c->length; i++)
        c->weight[i] = (float)(((double)sigma[i + 1] - (double)sigma[i]) / (end - begin));
    c->sigma = sigma[0];
    c->gain = (float)(diversity_gain * (begin * begin + end * end) / 2);
}

wd_chord wd__chord_at(const wd_trajectory_options *options, int64_t number)
{
    wd_chord c = find(options, number);
    float sigma[WD_CHORD_STEPS_MAX + 1] = {0};
    for (int64_t i = 0; i < c.length; i++) {
        c.target[i] = target_of(options, &c, c.slot, i);
        const wd_target_info target = wd__trajectory_target(options, c.target[i]);
        sigma[i] = target.sigma;
        sigma[i + 1] = target.sigma_next;
    }
    wd__chord_shape(&c, sigma, options->diversity_gain);
    for (int64_t i = 0; c.gain > 0 && i < c.length; i++)
        c.twin[i] = target_of(options, &c, wd__trajectory_twin(options, c.slot), i);
    return c;
}

/* The number behind the last target of the 2 K slots that the chord's slot is one of. They are K
 * pairs, of which some slots may not have begun yet. */
static int64_t pairs_end(const wd_trajectory_options *o, const wd_chord *chord)
{
    const int64_t second = (chord->slot / o->steps | 1) * o->steps;
    const int64_t latest = chord->round < o->steps - 1 ? chord->round : o->steps - 1;
    return wd__trajectory_number(o, chord->round, second + latest) + 1;
}

int64_t wd__stream_targets(const wd_trajectory_options *options, int64_t sample_end, int64_t reuse)
{
    if (sample_end <= 0) return 0;
    const int64_t last = wd__stream_target_last(sample_end, reuse);
    if (!options->student_steps) return last + 1;
    const wd_chord chord = find(options, last);
    if (options->diversity_gain > 0) return pairs_end(options, &chord);
    return target_of(options, &chord, chord.slot, chord.length - 1) + 1;
}

double wd__stream_targets_each(const wd_trajectory_options *options, int64_t reuse)
{
    return (double)(options->student_steps ? wd_chord_length(options) : 1) / (double)reuse;
}

double wd__stream_rollouts_each(const wd_trajectory_options *options, int64_t reuse)
{
    if (!(options->on_policy_share > 0)) return 0;
    const double blocks = (double)wd_chords(options);
    const double share = options->on_policy_share * options->on_policy_end;
    return share * (blocks - 1) / blocks / (double)reuse;
}
