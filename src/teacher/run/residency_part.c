/* The stages of one home on one device: opened, acquired and released.
 *
 * Data flow: mapped file -> a block per stage, converted to how stages are kept: in the device's
 * pool, where stages stay, or in host memory, from which they come to buffers. From disk they come
 * to buffers straight from the file: see teacher/run/residency_part.h. What is only for storage
 * (F16, quantised tensors) acquire widens into a buffer, which the queue's order makes safe to use
 * again.
 *
 * A processor uses tensors of the right dtype where they are mapped: a checkpoint in the compute
 * dtype then costs no memory of ours and no start-up, and all processes of a host share its pages.
 * What is converted or sent to devices, the ranks of a host share as well. */
#include "teacher/run/residency_part.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/progress.h"

enum { EXPERTS_MAX = WD_PLACED_EXPERTS_MAX };

static const char CONVERTED[] = "teacher weights being converted";

/* ---- use ---- */

/* A dry run sees addresses, those of a buffer for such stages: nothing is brought. */
static void view_dry(wd_dit_stage *out, const wd_residency_part *r, int expert, int stage)
{
    const wd_stage_buffer *s = r->buffer;
    while (s->kind != wd_stage_kind_of(stage, r->stages)) s++;
    wd_stage_view(out, &r->layout[expert][stage], s->block);
}

wd_status wd__residency_part_acquire(wd_residency_part *r, wd_dit_stage *out, int expert, int stage,
                                     wd_queue *queue, wd_err *err)
{
    wd_stage_buffer *s = NULL;
    if (r->home == WD_HOME_DEVICE) {
        wd_stage_view(out, &r->layout[expert][stage], r->block[expert][stage]);
    } else if (wd_device_is_dry(wd_queue_device(queue))) {
        view_dry(out, r, expert, stage);
    } else {
        WD_REQUIRE(r->announced >> expert & 1, "the sweep was not announced for expert %d", expert);
        WD_TRY(wd__stage_buffer_take(&s, r, expert, stage, err));
        wd_event_wait_on(queue, s->arrived);
        *out = s->view;
    }
    if (r->wide) wd_stage_widen(out, &r->layout[expert][stage], r->wide, queue);
    return WD_OK;
}

void wd__residency_part_release(wd_residency_part *r, int expert, int stage, wd_queue *queue)
{
    if (r->home == WD_HOME_DEVICE || wd_device_is_dry(wd_queue_device(queue))) return;
    wd__stage_buffer_give_back(r, expert, stage, queue);
}

/* ---- memory ---- */

wd_status wd__residency_part_take_host(void **out, wd_residency_part *r, size_t bytes,
                                       const char *what, wd_err *err)
{
    r->host_bytes += bytes;
    if (!r->dry) return wd_host_alloc(out, r->device, bytes, what, err);
    *out = WD_STAGE_NOWHERE;
    return WD_OK;
}

void wd__residency_part_give_host(const wd_residency_part *r, void *block)
{
    if (!r->dry) wd_host_free(r->device, block);
}

static void close_blocks(wd_residency_part *r)
{
    for (int e = 0; e < EXPERTS_MAX; e++) {
        for (int s = 0; r->block[e] && !r->shares && s < r->stages; s++)
            if (r->home == WD_HOME_DEVICE)
                wd_device_free(r->device, r->block[e][s]);
            else
                wd__residency_part_give_host(r, r->block[e][s]);
        wd_free(r->block[e]);
        wd_free(r->layout[e]);
        wd_safetensors_close(r->weights[e]);
    }
    if (r->shared && r->registered) wd_host_unregister(r->device, wd_shared_data(r->shared));
    wd_shared_close(r->shared);
}

void wd__residency_part_close(wd_residency_part *r)
{
    if (!r) return;
    wd__residency_part_end(r);
    if (r->copies) wd_queue_wait(r->copies);
    wd__residency_part_close_disk(r);
    wd__stage_order_close(&r->order);
    wd_queue_close(r->copies);
    wd__stage_buffers_close(r);
    wd_device_free(r->device, r->wide);
    close_blocks(r);
    wd_device_free(r->device, r->casting);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    wd_free(r);
}

/* ---- blocks of stages ---- */

void wd__residency_part_bring_block(wd_residency_part *r, wd_stage_buffer *s)
{
    const wd_stage_layout *layout = &r->layout[s->turn.expert][s->turn.stage];
    wd_event_wait_on(r->copies, s->released);
    wd_stage_view(&s->view, layout, s->block);
    wd_queue_copy(r->copies, s->block, r->block[s->turn.expert][s->turn.stage],
                  layout->block_bytes);
    wd_event_record(s->arrived, r->copies);
}

/* Whether weights are loaded for nothing, since the job is to stop. The residency that is opened
 * then has not all of them, and must not be used; ranks take part in all that they do together. */
static bool leaves_off(const wd_residency_part *r)
{
    return !r->dry && wd_stop_requested();
}

/* Fills a block from the file. At no time more than one stage is being converted. Memory that the
 * processor reads is converted where it is mapped, unless it is not aligned there. */
static wd_status fill(const wd_residency_part *r, const wd_stage_layout *layout, void *block,
                      wd_queue *queue, wd_err *err)
{
    const bool on_device = r->home == WD_HOME_DEVICE && !r->reads_host;
    void *staging = NULL;
    wd_dit_stage view;
    wd_stage_layout pieces = *layout;
    pieces.may_stop = !r->dry;
    if (on_device && layout->size.casting)
        WD_TRY(wd_device_alloc(&staging, r->device, layout->size.casting, CONVERTED, err));
    else if (layout->unaligned)
        WD_TRY(wd_alloc(&staging, layout->size.casting, 1, CONVERTED, err));
    wd_stage_bring(&view, &pieces, block, staging, queue);
    wd_queue_wait(queue);
    if (on_device)
        wd_device_free(r->device, staging);
    else
        wd_free(staging);
    return WD_OK;
}

/* Makes the block of a stage. In host memory it is laid out as on the device, so that one copy
 * brings it there. `at`: where it begins in shared memory; `fills`: this rank fills it. */
static wd_status take_in(wd_residency_part *r, int expert, int stage, size_t at, bool fills,
                         wd_queue *filler, wd_err *err)
{
    wd_stage_layout *layout = &r->layout[expert][stage];
    const size_t bytes = layout->block_bytes;
    void **block = &r->block[expert][stage];
    if (leaves_off(r)) return WD_OK;
    if (r->shares)
        *block = (r->shared ? (char *)wd_shared_data(r->shared) : WD_STAGE_NOWHERE) + at;
    else if (r->home == WD_HOME_HOST)
        WD_TRY(
            wd__residency_part_take_host(block, r, bytes, "teacher weights in host memory", err));
    else if (bytes)
        WD_TRY(wd_device_alloc(block, r->device, bytes, "teacher weights", err));
    if ((r->dry && r->home == WD_HOME_HOST) || !fills) return WD_OK;
    return fill(r, layout, *block, filler, err);
}

static wd_status open_expert(wd_residency_part *r, const wd_residency_part_options *o, int expert,
                             wd_err *err)
{
    const size_t stages = (size_t)r->stages;
    const wd_component component = o->only  ? *o->only
                                   : expert ? WD_COMPONENT_TRANSFORMER_2
                                            : WD_COMPONENT_TRANSFORMER;
    WD_TRY(wd_pipeline_open_weights(&r->weights[expert], o->pipeline, component, err));
    WD_TRY(wd_alloc((void **)&r->layout[expert], stages, sizeof(wd_stage_layout), "stages", err));
    return wd_alloc((void **)&r->block[expert], stages, sizeof(void *), "stages", err);
}

static wd_status lay_out(wd_residency_part *r, wd_placed_sizes *n,
                         const wd_residency_part_options *o, wd_err *err)
{
    const bool in_place = r->home == WD_HOME_DEVICE && r->reads_host;
    wd_status status;
    wd_tensor_table table;
    WD_TRY(wd_dit_table_open(&table, &o->pipeline->dit, err));
    for (int e = 0, s = -1; wd_placed_stages_next(&o->stages, &e, &s);) {
        if (!r->weights[e]) WD_TRY_OUT(open_expert(r, o, e, err));
        wd_stage_layout *layout = &r->layout[e][s];
        const wd_teacher_files files = {.weights = r->weights[e]};
        WD_TRY_OUT(wd_stage_lay_out(layout, &o->pipeline->dit, &table, &files, s, o->storage,
                                    in_place, err));
        if (in_place) r->mapped_bytes += wd_stage_mapped(&layout->size);
        r->block_bytes += layout->block_bytes;
        wd_placed_sizes_add(n, wd_stage_kind_of(s, r->stages), &layout->size);
    }
    status = WD_OK;
out:
    wd_dit_table_close(&table);
    return status;
}

/* ---- opening ---- */

/* Opens the memory that the ranks of a host have together: for what a processor cannot use where it
 * is mapped, and for all that is sent to devices from host memory. */
static wd_status open_shared(wd_residency_part *r, const wd_residency_part_options *o, wd_err *err)
{
    const bool sent = r->home == WD_HOME_HOST;
    if ((!sent && !r->reads_host) || !o->sharers || o->sharers->ranks == 1) return WD_OK;
    const size_t here = (size_t)o->sharers->host_ranks;
    r->sharers = o->sharers;
    r->shares = here > 1;
    if (r->shares) r->host_bytes += (r->block_bytes + here - 1) / here; /* each counts its part */
    if (r->dry) return WD_OK;
    WD_TRY(wd_shared_open(&r->shared, r->sharers, r->block_bytes, "teacher weights", err));
    if (!sent || !r->shared || leaves_off(r)) return WD_OK;
    WD_TRY(wd_host_register(r->device, wd_shared_data(r->shared), r->block_bytes,
                            "teacher weights in host memory", err));
    r->registered = true;
    return WD_OK;
}

/* Brings all `stages` to where they live, in memory. Ranks that share it take turns to fill it; on
 * a dry run each fills all, so that all plan the same. */
static wd_status open_blocks(wd_residency_part *r, const wd_residency_part_options *o,
                             int64_t stages, wd_err *err)
{
    wd_progress_task loading = {0};
    size_t at = 0;
    int n = 0;
    WD_TRY(open_shared(r, o, err));
    const bool divides = r->shares && !r->dry;
    const int ranks = divides ? r->sharers->host_ranks : 1;
    const int rank = divides ? r->sharers->host_rank : 0;
    if (!r->dry) loading = wd_progress_begin("loading weights", "part", 0, stages);
    for (int e = 0, s = -1; wd_placed_stages_next(&o->stages, &e, &s);) {
        wd_queue *filler = r->home == WD_HOME_DEVICE ? o->queue : o->processor;
        WD_TRY(take_in(r, e, s, at, n++ % ranks == rank, filler, err));
        at += r->layout[e][s].block_bytes;
        if (leaves_off(r)) continue;
        wd_progress_at(&loading, loading.now.done + 1);
    }
    if (!r->dry && r->sharers) wd_shared_seal(r->shared, r->sharers);
    return WD_OK;
}

static wd_status open_buffers(wd_residency_part *r, const wd_placed_sizes *n,
                              const wd_placed_stages *part, wd_err *err)
{
    for (int k = 0; k < WD_STAGE_KINDS; k++)
        for (int i = 0; i < wd_placed_buffers(part, (wd_stage_kind)k); i++)
            WD_TRY(wd__stage_buffer_open(r, (wd_stage_kind)k, n->block[k], err));
    return WD_OK;
}

/* Opens what brings stages to buffers. Ranks of a host that share the files have one reader. */
static wd_status open_streaming(wd_residency_part *r, const wd_placed_sizes *n,
                                const wd_residency_part_options *o, wd_err *err)
{
    WD_TRY(wd_queue_open(&r->copies, r->device, err));
    WD_TRY(open_buffers(r, n, &o->stages, err));
    if (!r->dry) WD_TRY(wd__stage_order_open(&r->order, &o->stages, err));
    if (r->home == WD_HOME_DISK)
        WD_TRY(wd__residency_part_open_disk(r, n->reading, n->converting, o->sharers, err));
    return r->dry ? WD_OK : wd__residency_part_start(r, err);
}

static wd_status open_part(wd_residency_part *r, const wd_residency_part_options *o, wd_err *err)
{
    wd_placed_sizes n = {0};
    WD_TRY(lay_out(r, &n, o, err));
    if (n.casting && r->home == WD_HOME_DISK && !r->reads_host)
        WD_TRY(wd_device_alloc(&r->casting, r->device, n.casting, CONVERTED, err));
    if (r->home != WD_HOME_DISK) WD_TRY(open_blocks(r, o, n.stages, err));
    if (n.widened)
        WD_TRY(wd_device_alloc(&r->wide, r->device, n.widened, "widened teacher weights", err));
    return r->home == WD_HOME_DEVICE ? WD_OK : open_streaming(r, &n, o, err);
}

wd_status wd__residency_part_open(wd_residency_part **out, const wd_residency_part_options *o,
                                  wd_err *err)
{
    wd_residency_part *r;
    WD_TRY(wd_alloc((void **)&r, 1, sizeof *r, "a residency", err));
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->next_read = INT64_MAX;
    r->stages = o->stages.placement->stages;
    r->home = o->stages.home;
    r->device = wd_queue_device(o->queue);
    r->dry = wd_device_is_dry(r->device);
    r->reads_host = wd_device_traits(r->device)->reads_host;
    const wd_status status = open_part(r, o, err);
    if (status == WD_OK)
        *out = r;
    else
        wd__residency_part_close(r);
    return status;
}
