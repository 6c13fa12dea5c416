/* Ranks that are threads of a test, each with its own devices, and what they open on them. */
#ifndef WD_TESTS_HARNESS_RANKS_H
#define WD_TESTS_HARNESS_RANKS_H

#include "harness/stepper.h"

#include <pthread.h>

#include "harness/comm.h"
#include "teacher/plan/stage_layout.h"
#include "teacher/plan/strategy.h"
#include "train/loop/memory_plan.h"
#include "train/network/init.h"

enum { RANKS_MAX = 4, MICRO_BATCHES = 4 };

/* What ranks have: a processor; a device as fast as it goes; one so slow that whoever does not wait
 * comes too early. */
#define CPU "cpu"
#define SIM "sim:1x1GiB"
#define SLOW_SIM "sim:1x1GiB@link=50MB/s,compute=3GFLOP/s"

/* For calls on a rank's thread, which get `err`. */
#define HARNESS_OK(call)                                                                           \
    do {                                                                                           \
        wd_err harness_err = {0}, *err = &harness_err;                                             \
        if ((call) != WD_OK) {                                                                     \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, err->message);           \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* ---- threads ---- */

/* What a test's struct of a rank begins with. */
typedef struct rank_thread {
    pthread_t thread;
    wd_comm *comm;
} rank_thread;

/* Runs `run` for each of the structs [ranks] at `all`, of `bytes` each, as one of so many ranks. */
static inline void run_ranks(void *all, size_t bytes, int ranks, void *(*run)(void *rank))
{
    wd_err err = {0};
    wd_comm *comm[RANKS_MAX];
    rank_thread *rank[RANKS_MAX];
    wd_test_ok(wd_comm_open_threads(comm, ranks, &err), &err);
    for (int r = 0; r < ranks; r++) {
        rank[r] = (rank_thread *)(void *)((char *)all + (size_t)r * bytes);
        rank[r]->comm = comm[r];
        assert_int_equal(pthread_create(&rank[r]->thread, NULL, run, rank[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(rank[r]->thread, NULL);
    for (int r = 0; r < ranks; r++) wd_comm_close(comm[r]);
}

/* ---- placements ---- */

/* All of the teacher on a rank's first device. */
static inline wd_placement whole_on_first(const wd_pipeline *teacher)
{
    return (wd_placement){.experts = wd_teacher_experts(teacher),
                          .stages = wd_dit_stages(&teacher->dit),
                          .buffers = 2};
}

/* What a strategy places: wan-tiny, kept in `storage` ... */
static inline wd_teacher_size size_of(const wd_pipeline *teacher, wd_dtype storage)
{
    wd_teacher_size size;
    const wd_teacher_files files[2] = {{.dtype = WD_F32}, {.dtype = WD_F32}};
    HARNESS_OK(wd_teacher_size_of(&size, &teacher->dit, 2, files, storage, err));
    for (int s = 0; s < size.stages; s++) size.flops[s] = 1;
    return size;
}

/* ... on `devices` of each of `ranks`, which have room for all of it. */
static inline wd_cluster cluster_of(const wd_devices *devices, int ranks)
{
    wd_cluster cluster = {
        .ranks = ranks, .devices = devices->count, .host_bytes = SIZE_MAX, .batches = 6};
    for (int d = 0; d < cluster.devices; d++)
        cluster.device[d] = (wd_cluster_device){
            .bytes = SIZE_MAX / 2, .flops_per_s = {1, 1}, .reads_host = d == devices->processor};
    return cluster;
}

/* ---- a rank's stepper ---- */

typedef struct rank_stepper {
    wd_devices devices; /* opened by the test */
    wd_memory_plan plan;
    wd_residency *residency;
    wd_stepper *stepper;
} rank_stepper;

/* Plans a stepper on r->devices and opens it, its student begun. `placement` is borrowed until it
 * is closed. */
static inline void open_stepper(rank_stepper *r, const wd_stepper_options *o,
                                const wd_placement *placement)
{
    const wd_devices *d = &r->devices;
    const wd_samples_options none = {0};
    r->plan = (wd_memory_plan){0};
    HARNESS_OK(wd_memory_plan_stepper(&r->plan, o, &none, d, placement, err));
    HARNESS_OK(wd_residency_open_placed(&r->residency, o->teacher, placement, o->teacher_dtype,
                                        d->teacher, d->host, o->comm, err));
    const wd_stepper_teacher where = {r->residency, placement, d->teacher, d->home};
    HARNESS_OK(wd_stepper_open(&r->stepper, o, &where, d->student, err));
    HARNESS_OK(wd_stepper_begin(r->stepper, err));
}

/* Pools have peaked where the plan says. */
static inline void check_peaks(const rank_stepper *r)
{
    for (int i = 0; i < r->devices.count; i++)
        if (i != r->devices.processor)
            HARNESS_CHECK(wd_device_bytes_peak(r->devices.device[i]) ==
                          wd_memory_plan_peak(&r->plan, i));
}

/* Of all its devices, so far. */
static inline int64_t device_allocations(const rank_stepper *r)
{
    int64_t n = 0;
    for (int i = 0; i < r->devices.count; i++) n += wd__device_alloc_count(r->devices.device[i]);
    return n;
}

/* Nothing but what queues have for their work is left on them. */
static inline void close_devices(wd_devices *d)
{
    for (int i = 0; i < d->count; i++) {
        size_t bytes = wd_queue_workspace_bytes(d->teacher[i]);
        if (!i && d->student != d->host)
            bytes += wd_queue_workspace_bytes(d->student) + wd_queue_workspace_bytes(d->home);
        HARNESS_CHECK(wd_device_bytes(d->device[i]) == bytes);
    }
    wd_devices_close(d);
}

static inline void close_stepper(rank_stepper *r)
{
    wd_stepper_close(r->stepper);
    wd_residency_close(r->residency);
    close_devices(&r->devices);
}

#endif
