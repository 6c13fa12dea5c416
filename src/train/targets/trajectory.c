/* Trajectories: see train/targets/trajectory.h. */
#include "train/targets/trajectory.h"

#include <inttypes.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "model/sampling/schedule.h"

enum { EXPERTS_ENOUGH = 4096 };

/* Slots j < slots with j mod steps <= round. */
static int64_t slots_begun(const wd_trajectory_options *o, int64_t round)
{
    if (round >= o->steps - 1) return o->slots;
    int64_t whole = o->slots / o->steps, rest = o->slots % o->steps, phases = round + 1;
    return whole * phases + (rest < phases ? rest : phases);
}

int64_t wd_trajectory_first_target(const wd_trajectory_options *o, int64_t round)
{
    int64_t ramp = round < o->steps - 1 ? round : o->steps - 1, total = 0;
    for (int64_t r = 0; r < ramp; r++) total += slots_begun(o, r);
    return total + (round - ramp) * o->slots;
}

/* The i-th slot (from 0) that has begun in `round`. */
static int64_t slot_at(const wd_trajectory_options *o, int64_t round, int64_t i)
{
    if (round >= o->steps - 1) return i;
    int64_t phases = round + 1; /* slots 0 .. round, then steps .. steps + round, ... */
    return i / phases * o->steps + i % phases;
}

int64_t wd__trajectory_number(const wd_trajectory_options *o, int64_t round, int64_t slot)
{
    const int64_t phases = round < o->steps - 1 ? round + 1 : o->steps;
    WD_REQUIRE(slot % o->steps < phases && slot < o->slots,
               "slot %" PRId64 " has no target in round %" PRId64, slot, round);
    return wd_trajectory_first_target(o, round) + slot / o->steps * phases + slot % o->steps;
}

/* A Feistel network of four rounds over the next even number of bits, walked until it lands inside
 * (Black & Rogaway, "Ciphers with arbitrary finite domains", 2002). */
int64_t wd_permute(int64_t i, int64_t count, wd_random key)
{
    int half = 1;
    while ((INT64_C(1) << 2 * half) < count) half++;
    uint64_t mask = (UINT64_C(1) << half) - 1, x = (uint64_t)i;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint32_t bits[4];
            wd_random_bits(bits, key, round << 32 | right);
            uint64_t next = left ^ (bits[0] & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)count);
    return (int64_t)x;
}

wd_status wd_trajectory_experts(uint8_t **out, int64_t *rounds,
                                const wd_trajectory_options *options, double boundary_timestep,
                                wd_err *err)
{
    const wd_trajectory_options *o = options;
    uint8_t *expert;
    int64_t n = EXPERTS_ENOUGH / o->slots;
    if (n > o->steps) n = o->steps;
    if (n < 1) n = 1;
    WD_TRY(wd_alloc((void **)&expert, (size_t)(n * o->slots), 1, "experts of targets", err));
    const int64_t first = wd_trajectory_first_target(o, o->steps);
    for (int64_t i = 0; i < n * o->slots; i++)
        expert[i] = wd__trajectory_target(o, first + i).timestep < boundary_timestep;
    *out = expert;
    *rounds = n;
    return WD_OK;
}

int64_t wd__trajectory_prompt(const wd_trajectory_options *o, int64_t pair)
{
    wd_random key = {
        .seed = o->seed, .stream = WD_RANDOM_PROMPT, .index = (uint64_t)(pair / o->prompts)};
    return wd_permute(pair % o->prompts, o->prompts, key);
}

/* Whether the slot's trajectories are the second ones of their pairs. */
static bool is_second(const wd_trajectory_options *o, int64_t slot)
{
    return o->diversity_gain > 0 && slot / o->steps % 2 == 1;
}

int64_t wd__trajectory_twin(const wd_trajectory_options *o, int64_t slot)
{
    WD_REQUIRE(o->slots % (2 * o->steps) == 0, "%" PRId64 " slots are not in pairs", o->slots);
    return is_second(o, slot) ? slot - o->steps : slot + o->steps;
}

bool wd__trajectory_is_on_policy(const wd_trajectory_options *o, int64_t pair)
{
    const wd_random key = {.seed = o->seed, .stream = WD_RANDOM_ON_POLICY, .index = (uint64_t)pair};
    return (double)wd_random_uniform(key, 0) < o->on_policy_share;
}

/* sigma at step k of a trajectory: k = 0 is pure noise, k = steps the picture, between them one
 * point around each k / steps. */
static float sigma_at(const wd_trajectory_options *o, int64_t serial, int64_t k)
{
    if (k == 0) return 1.0f;
    if (k == o->steps) return 0.0f;
    if (o->sigma[0] > 0) return o->sigma[k];
    wd_random key = {.seed = o->seed, .stream = WD_RANDOM_SIGMA, .index = (uint64_t)serial};
    double jitter = o->student_steps ? 0 : (double)wd_random_uniform(key, (uint64_t)k) - 0.5;
    double u = 1.0 - ((double)k + jitter) / (double)o->steps;
    return (float)wd_flow_shift(u, o->flow_shift);
}

float wd__trajectory_timestep(const wd_trajectory_options *o, float sigma)
{
    double t = (double)sigma * (double)o->num_train_timesteps;
    if (!o->integer_timesteps || o->sigma[0] > 0) return (float)t;
    int64_t whole = (int64_t)t; /* diffusers: sigma 0.999999 gives 999 */
    if (whole >= o->num_train_timesteps) whole = o->num_train_timesteps - 1;
    return (float)whole;
}

/* The pair whose trajectories the slot and its twin have after `before` others. */
static int64_t pair_of(const wd_trajectory_options *o, int64_t slot, int64_t before)
{
    const int64_t index = slot / (2 * o->steps) * o->steps + slot % o->steps;
    return o->serial_first + before * (o->slots / 2) + index;
}

wd_target_info wd__trajectory_target(const wd_trajectory_options *o, int64_t target)
{
    WD_REQUIRE(target >= 0, "there is no target %" PRId64, target);
    int64_t ramp_end = wd_trajectory_first_target(o, o->steps - 1), round = 0, left = target;
    if (target >= ramp_end) {
        round = o->steps - 1 + (target - ramp_end) / o->slots;
        left = (target - ramp_end) % o->slots;
    } else {
        while (left >= slots_begun(o, round)) left -= slots_begun(o, round++);
    }
    int64_t slot = slot_at(o, round, left), age = round - slot % o->steps;
    int64_t serial = o->serial_first + age / o->steps * o->slots + slot, step = age % o->steps;
    int64_t pair = o->diversity_gain > 0 ? pair_of(o, slot, age / o->steps) : serial;
    float sigma = sigma_at(o, serial, step);
    return (wd_target_info){.round = round,
                            .slot = slot,
                            .serial = serial,
                            .pair = pair,
                            .second = is_second(o, slot),
                            .step = step,
                            .prompt = wd__trajectory_prompt(o, pair),
                            .sigma = sigma,
                            .sigma_next = sigma_at(o, serial, step + 1),
                            .timestep = wd__trajectory_timestep(o, sigma)};
}

int64_t wd__stream_target(const wd_trajectory_options *o, int64_t sample, int64_t reuse,
                          int64_t replay)
{
    int64_t newest = sample / reuse;
    if (sample % reuse == 0 || newest == 0) return newest;
    int64_t range = newest < replay ? newest : replay;
    wd_random key = {.seed = o->seed, .stream = WD_RANDOM_REPLAY, .index = (uint64_t)sample};
    return newest - 1 - (int64_t)wd_random_below(key, 0, (uint64_t)range);
}
