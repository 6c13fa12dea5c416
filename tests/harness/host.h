/* What the tests of memory that a host's ranks share have in common: teachers of ranks, and whether
 * they are the same. */
#ifndef WD_TESTS_HARNESS_HOST_H
#define WD_TESTS_HARNESS_HOST_H

#include "placements.h"
#include "testing.h"

#include "bench/random_transformer.h"
#include "harness/forked.h"
#include "sanitized.h"
#include "teacher/run/residency.h"

enum { HARNESS_PAGE = 4096, POOL = 256 << 20 };

static const wd_dit_config config = {.in_channels = 16,
                                     .out_channels = 16,
                                     .heads = 4,
                                     .head_dim = 128,
                                     .ffn_dim = 2048,
                                     .layers = 3,
                                     .freq_dim = 64,
                                     .text_dim = 64,
                                     .patch = {1, 2, 2},
                                     .rope_max_seq_len = 1024,
                                     .cross_attn_norm = true,
                                     .eps = 1e-6};

static wd_pipeline large, tiny; /* of this shape, bf16; with two experts */

static inline int open_pipelines(void **state)
{
    (void)state;
    char folder[256];
    wd_err err = {0};
    snprintf(folder, sizeof folder, "%s/transformer", wd_test_folder());
    wd_test_ok(wd_bench_write_transformer(folder, &config, WD_BF16, &err), &err);
    wd_test_ok(wd_pipeline_open(&large, wd_test_folder(), &err), &err);
    wd_test_ok(wd_pipeline_open(&tiny, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    return 0;
}

typedef struct rank {
    wd_device *device, *processor;
    wd_queue *queue, *host;
    wd_residency *residency;
} rank;

/* The device that computes is the processor, or a simulated one. */
static inline void open_devices(rank *r, bool simulated)
{
    const wd_sim_options sim = {.bytes = POOL};
    wd_err err = {0};
    *r = (rank){0};
    HARNESS_CHECK(!wd_device_open_cpu(&r->processor, 1, &err));
    HARNESS_CHECK(!wd_queue_open(&r->host, r->processor, &err));
    r->device = r->processor;
    r->queue = r->host;
    if (!simulated) return;
    HARNESS_CHECK(!wd_device_open_sim(&r->device, &sim, &err));
    HARNESS_CHECK(!wd_queue_open(&r->queue, r->device, &err));
}

static inline wd_residency *open_teacher(const rank *r, const wd_pipeline *pipeline, wd_home home,
                                         wd_dtype storage, wd_comm *comm)
{
    wd_err err = {0};
    wd_residency *residency;
    const wd_placement p = wd_test_all_in(pipeline, home);
    const wd_status status =
        wd_residency_open_placed(&residency, pipeline, &p, storage, &r->queue, r->host, comm, &err);
    if (status != WD_OK) fprintf(stderr, "%s\n", err.message);
    HARNESS_CHECK(status == WD_OK);
    return residency;
}

static inline int stages_of(const wd_residency *residency)
{
    return wd_residency_info_of(residency)->placement.stages;
}

static inline void close_devices(rank *r)
{
    if (r->queue != r->host) {
        wd_queue_close(r->queue);
        wd_device_close(r->device);
    }
    wd_queue_close(r->host);
    wd_device_close(r->processor);
}

/* Every byte of the stage is the same, wherever the two have it. */
static inline void compare_stage(const rank *r, wd_residency *a, wd_residency *b, int expert,
                                 int stage)
{
    wd_residency *const both[2] = {a, b};
    wd_dit_stage view[2];
    wd_err err = {0};
    for (int i = 0; i < 2; i++) {
        const wd_status status =
            wd_residency_acquire(both[i], &view[i], expert, stage, r->queue, &err);
        if (status != WD_OK) fprintf(stderr, "%s\n", err.message);
        HARNESS_CHECK(status == WD_OK);
    }
    for (int t = 0; t < WD_DIT_BLOCK_SLOTS; t++) {
        if (!view[0].t[t].data) continue;
        const size_t bytes = wd_tensor_bytes(&view[0].t[t]);
        char *copy[2];
        HARNESS_CHECK(bytes == wd_tensor_bytes(&view[1].t[t]));
        for (int i = 0; i < 2; i++) {
            HARNESS_CHECK(!wd_alloc((void **)&copy[i], bytes, 1, "a test", &err));
            wd_queue_copy_and_wait(r->queue, copy[i], view[i].t[t].data, bytes);
        }
        wd_queue_wait(r->queue);
        HARNESS_CHECK(!memcmp(copy[0], copy[1], bytes));
        for (int i = 0; i < 2; i++) wd_free(copy[i]);
    }
    for (int i = 0; i < 2; i++) wd_residency_release(both[i], expert, stage, r->queue);
}

/* A zeroed page that a parent and its ranks share. */
static inline void *open_shared_page(void)
{
    void *page =
        mmap(NULL, HARNESS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    return page;
}

#endif
