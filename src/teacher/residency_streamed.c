/* The `streamed` residency: weights live in host memory or in the checkpoint's files, and come to
 * the computing device stage by stage, each sweep anew.
 *
 * Data flow, host: (mapped file | block converted once, one for all ranks of a host) -> copy on a
 * queue of our own -> slot.
 * Disk: file -> (staging ->) slot, by a thread that reads ahead; the page cache keeps nothing.
 * A processor computes from slots in host memory, which are read into without a copy. Where ranks
 * of a host share the part: file -> ring of the host's reader -> slot, by a thread that follows it.
 *
 * Two slots for blocks: one is used while the next block comes. Embedding and head, which take next
 * to no time, have one each: from a block's slot they would keep the first block of the next sweep
 * away until the last one of this sweep is done. Events order the two queues; where the storage
 * dtype is only for storage (F16), acquire widens the stage, as the `resident` residency does. */
#include "teacher/residency_kinds.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "io/file_reader.h"
#include "teacher/host_copy.h"
#include "teacher/host_reader.h"

enum { EXPERTS_MAX = WD_PLACED_EXPERTS_MAX, SLOTS_MAX = WD_PLACED_SLOTS_MAX + 2, STAGINGS = 2 };

typedef enum slot_state { EMPTY, WANTED, FILLED, FAILED } slot_state;

typedef struct slot {
    wd_stage_kind kind; /* of the stages that it is for */
    void *block;        /* device memory; host memory for a processor */
    wd_event *arrived, *released;
    int expert, stage;
    bool in_use;
    int64_t asked; /* when last, in calls; of a host's reader: its number */
    slot_state state;
    wd_dit_stage view;
    wd_err error;
} slot;

typedef struct streamed {
    wd_residency base;
    wd_device *device;
    wd_queue *copies; /* of `device`, ours */
    bool from_disk, reads_host, widens;
    bool dry; /* memory is counted, not taken */
    wd_safetensors *weights[EXPERTS_MAX];
    wd_stage_layout *layout[EXPERTS_MAX]; /* [stages]: from `source` to a slot */
    void **converted[EXPERTS_MAX];        /* [stages] host memory, if it is this rank's own */
    wd_host_copy copy;
    slot slot[SLOTS_MAX];
    int slots;
    int64_t asked;
    void *casting; /* device: a tensor that is converted there */
    void *wide[WD_PLACED_SLOTS_MAX];
    int wides, wide_next;
    /* disk */
    wd_file_reader *reader;
    void *staging[STAGINGS];  /* host: what is read and is not used as it was read */
    wd_event *sent[STAGINGS]; /* from there */
    int stagings, staging_next;
    wd_host_reader *host_reader; /* instead, where ranks share one */
    pthread_t thread;
    bool threaded, closing;
    pthread_mutex_t lock; /* of slots' states and `closing` */
    pthread_cond_t changed;
} streamed;

/* ---- filling a slot ---- */

/* Launches what brings the stage from host memory, for work that waits for slot->arrived. */
static void launch(streamed *r, slot *s, const wd_stage_layout *layout)
{
    wd_event_wait_on(r->copies, s->released);
    wd_stage_bring(&s->view, layout, s->block, r->casting, r->copies);
    wd_event_record(s->arrived, r->copies);
}

/* Reads the stage's tensors: those that stay as they are into the slot of a processor, others into
 * a staging, from which they are brought while the next stage is read into the other. So for
 * another device a stage is read while its slot is still in use. */
static wd_status read_stage(streamed *r, slot *s, wd_err *err)
{
    wd_stage_layout layout = r->layout[s->expert][s->stage];
    wd_dit_stage view;
    const int k = r->staging_next++ % r->stagings;
    char *staging = r->staging[k];
    if (r->reads_host) wd_event_wait(s->released);
    wd_event_wait(r->sent[k]);
    wd_stage_view(&view, &layout, s->block);
    for (int i = 0; i < layout.tensors; i++) {
        const wd_safetensors_entry *entry = layout.entry[i];
        if (!entry) continue;
        bool direct = r->reads_host && layout.file[i].dtype == layout.stored[i].dtype;
        size_t bytes = wd_tensor_bytes(&layout.file[i]);
        void *to = direct ? view.t[i].data : staging;
        WD_TRY(wd_file_reader_read(r->reader, to, entry->file, entry->file_offset, bytes, err));
        if (direct) {
            layout.stored[i].data = to;
            layout.offset[i] = SIZE_MAX; /* it is there */
        } else {
            layout.file[i].data = staging;
            staging += wd_round_up(bytes, 64);
        }
    }
    launch(r, s, &layout);
    wd_event_record(r->sent[k], r->copies);
    return WD_OK;
}

/* The one that was asked for first. */
static slot *next_wanted(streamed *r)
{
    slot *first = NULL;
    for (int i = 0; i < r->slots; i++) {
        slot *s = &r->slot[i];
        if (s->state == WANTED && (!first || s->asked < first->asked)) first = s;
    }
    return first;
}

static void *read_ahead(void *context)
{
    streamed *r = context;
    pthread_mutex_lock(&r->lock);
    while (!r->closing) {
        slot *s = next_wanted(r);
        if (!s) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        wd_status status = read_stage(r, s, &s->error);
        pthread_mutex_lock(&r->lock);
        s->state = status == WD_OK ? FILLED : FAILED;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* An empty slot for what the host's reader brings; NULL: it is closing. */
static slot *take_empty(streamed *r, const wd_reading *of)
{
    const wd_stage_kind kind = wd_stage_kind_of(of->stage, r->base.stages);
    slot *empty = NULL;
    pthread_mutex_lock(&r->lock);
    while (!empty && !r->closing) {
        for (int i = 0; i < r->slots; i++)
            if (r->slot[i].state == EMPTY && r->slot[i].kind == kind) empty = &r->slot[i];
        if (!empty) pthread_cond_wait(&r->changed, &r->lock);
    }
    if (empty) {
        empty->expert = of->expert;
        empty->stage = of->stage;
        empty->asked = of->number;
        empty->state = WANTED;
    }
    pthread_mutex_unlock(&r->lock);
    return empty;
}

/* Brings what the host's reader reads, stage by stage. */
static void *follow(void *context)
{
    streamed *r = context;
    wd_reading next;
    while (wd_host_reader_next(&next, r->host_reader)) {
        wd_stage_layout layout;
        slot *s = take_empty(r, &next);
        if (!s) break;
        const wd_status status = wd_host_reader_await(&layout, r->host_reader, &next, &s->error);
        if (status == WD_OK) {
            launch(r, s, &layout);
            wd_event_record(r->sent[0], r->copies);
        }
        pthread_mutex_lock(&r->lock);
        s->state = status == WD_OK ? FILLED : FAILED;
        if (!wd_host_reader_wants(r->host_reader, next.number)) s->state = EMPTY;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        wd_event_wait(r->sent[0]);
        wd_host_reader_done(r->host_reader, &next);
    }
    return NULL;
}

/* What came for a sweep that was said to be next, and is not, makes room. */
static void streamed_begin(wd_residency *self, wd_sweep_experts sweep, unsigned next)
{
    streamed *r = (streamed *)self;
    if (!r->host_reader) return;
    wd_host_reader_begin(r->host_reader, sweep, next);
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->slots; i++) {
        slot *s = &r->slot[i];
        if (!s->in_use && (s->state == FILLED || s->state == FAILED) &&
            !wd_host_reader_wants(r->host_reader, s->asked))
            s->state = EMPTY;
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static slot *find(streamed *r, int expert, int stage)
{
    for (int i = 0; i < r->slots; i++) {
        slot *s = &r->slot[i];
        if (s->state != EMPTY && s->expert == expert && s->stage == stage) return s;
    }
    return NULL;
}

/* A slot for a stage, that nobody uses and nothing comes to: an empty one, else, if it `must` be,
 * what was not asked for longest is given up: it came for a sweep that is not the next one. */
static slot *find_free(streamed *r, int stage, bool must)
{
    slot *best = NULL;
    for (int i = 0; i < r->slots; i++) {
        slot *s = &r->slot[i];
        if (s->kind != wd_stage_kind_of(stage, r->base.stages)) continue;
        if (s->in_use || s->state == WANTED) continue;
        if (s->state == EMPTY) return s;
        if (must && (!best || s->asked < best->asked)) best = s;
    }
    return best;
}

/* The slot that has the stage or gets it; waits for a free one only if `must`, else it may be NULL.
 * A reader needs `asked` as it was when a stage became wanted. */
static slot *ask(streamed *r, int expert, int stage, bool must)
{
    pthread_mutex_lock(&r->lock);
    slot *s = find(r, expert, stage);
    bool there = s;
    while (!s && !(s = find_free(r, stage, must)) && must) pthread_cond_wait(&r->changed, &r->lock);
    if (s && s->state != WANTED) s->asked = r->asked++;
    if (s && !there) {
        s->expert = expert;
        s->stage = stage;
        s->state = r->from_disk ? WANTED : FILLED;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    if (s && !there && !r->from_disk) launch(r, s, &r->layout[expert][stage]);
    return s;
}

/* The slot that has the stage for this sweep, once the host's reader has brought it: there may be
 * one for the next sweep, too. */
static slot *await_brought(streamed *r, int expert, int stage)
{
    slot *first = NULL;
    bool waits = false;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        for (int i = 0; i < r->slots; i++) {
            slot *s = &r->slot[i];
            if (s->in_use || (s->state != FILLED && s->state != FAILED)) continue;
            if (s->expert != expert || s->stage != stage) continue;
            if (!first || s->asked < first->asked) first = s;
        }
        if (first) break;
        if (!waits) wd_host_reader_wait(r->host_reader, true);
        waits = true;
        pthread_cond_wait(&r->changed, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    if (waits) wd_host_reader_wait(r->host_reader, false);
    return first;
}

/* ---- the residency ---- */

static void streamed_prefetch(wd_residency *self, int expert, int stage)
{
    streamed *r = (streamed *)self;
    if (!r->host_reader) ask(r, expert, stage, false); /* which goes its own way ahead */
}

static void widen(streamed *r, wd_dit_stage *stage, wd_queue *queue)
{
    if (!r->widens) return;
    wd_stage_widen(stage, r->wide[r->wide_next], queue);
    r->wide_next = (r->wide_next + 1) % r->wides;
}

/* Waits until the stage's coming is launched, or has failed. */
static wd_status take(slot **out, streamed *r, int expert, int stage, wd_err *err)
{
    slot *s = r->host_reader ? await_brought(r, expert, stage) : ask(r, expert, stage, true);
    pthread_mutex_lock(&r->lock);
    while (s->state == WANTED) pthread_cond_wait(&r->changed, &r->lock);
    bool failed = s->state == FAILED;
    if (failed) s->state = EMPTY;
    s->in_use = !failed;
    pthread_mutex_unlock(&r->lock);
    if (failed) {
        if (err) *err = s->error;
        return s->error.status;
    }
    *out = s;
    return WD_OK;
}

/* A dry run sees addresses, those of a slot for such stages: nothing is brought. */
static void view_dry(wd_dit_stage *out, const streamed *r, int expert, int stage)
{
    const slot *s = r->slot;
    while (s->kind != wd_stage_kind_of(stage, r->base.stages)) s++;
    wd_stage_view(out, &r->layout[expert][stage], s->block);
}

static wd_status streamed_acquire(wd_residency *self, wd_dit_stage *out, int expert, int stage,
                                  wd_queue *queue, wd_err *err)
{
    streamed *r = (streamed *)self;
    slot *s = NULL;
    if (wd_device_is_dry(wd_queue_device(queue))) {
        view_dry(out, r, expert, stage);
    } else {
        WD_TRY(take(&s, r, expert, stage, err));
        wd_event_wait_on(queue, s->arrived);
        *out = s->view;
    }
    widen(r, out, queue);
    return WD_OK;
}

static void streamed_release(wd_residency *self, int expert, int stage, wd_queue *queue)
{
    streamed *r = (streamed *)self;
    if (wd_device_is_dry(wd_queue_device(queue))) return;
    pthread_mutex_lock(&r->lock);
    slot *s = r->slot;
    while (!s->in_use || s->expert != expert || s->stage != stage) s++;
    wd_event_record(s->released, queue);
    s->in_use = false;
    s->state = EMPTY; /* the next sweep brings it again */
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* Host memory for weights: on a dry device an address that nobody uses. */
static wd_status take_host(void **out, streamed *r, size_t bytes, const char *what, wd_err *err)
{
    r->base.host_bytes += bytes;
    if (!r->dry) return wd_alloc(out, bytes, 1, what, err);
    *out = (void *)((uintptr_t)1 << 30);
    return WD_OK;
}

static void give_host(const streamed *r, void *block)
{
    if (!r->dry) wd_free(block);
}

static void streamed_close(wd_residency *self)
{
    streamed *r = (streamed *)self;
    if (r->threaded) {
        pthread_mutex_lock(&r->lock);
        r->closing = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        if (r->host_reader) wd_host_reader_leave(r->host_reader);
        pthread_join(r->thread, NULL);
    }
    wd_host_reader_close(r->host_reader);
    wd_queue_close(r->copies);
    for (int i = 0; i < r->slots; i++) {
        if (r->slot[i].released) wd_event_wait(r->slot[i].released);
        wd_event_close(r->slot[i].arrived);
        wd_event_close(r->slot[i].released);
        if (r->reads_host)
            give_host(r, r->slot[i].block);
        else
            wd_device_free(r->device, r->slot[i].block);
    }
    for (int i = 0; i < r->wides; i++) wd_device_free(r->device, r->wide[i]);
    for (int e = 0; e < EXPERTS_MAX; e++) {
        for (int s = 0; r->converted[e] && s < r->base.stages; s++)
            give_host(r, r->converted[e][s]);
        wd_free(r->converted[e]);
        wd_free(r->layout[e]);
        wd_safetensors_close(r->weights[e]);
    }
    wd_host_copy_close(&r->copy);
    wd_device_free(r->device, r->casting);
    for (int i = 0; i < STAGINGS; i++) wd_event_close(r->sent[i]);
    for (int i = 0; i < r->stagings; i++) give_host(r, r->staging[i]);
    wd_file_reader_close(r->reader);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    wd_free(r);
}

static const wd_residency_vtable streamed_vtable = {
    .begin = streamed_begin,
    .prefetch = streamed_prefetch,
    .acquire = streamed_acquire,
    .release = streamed_release,
    .close = streamed_close,
};

/* ---- opening ---- */

/* Fills a block with what `host` says, by the processor. */
static wd_status fill(const wd_stage_layout *host, void *block, wd_queue *processor, wd_err *err)
{
    wd_dit_stage view;
    void *staging = NULL;
    if (host->staging_bytes)
        WD_TRY(wd_alloc(&staging, host->staging_bytes, 1, "teacher weights converted", err));
    wd_stage_bring(&view, host, block, staging, processor);
    wd_queue_wait(processor);
    wd_free(staging);
    return WD_OK;
}

/* The tensors of a stage that the file has in another dtype are converted by the processor, once:
 * what is brought comes from there. */
static wd_status convert(streamed *r, const wd_pipeline *pipeline, const wd_tensor_table *table,
                         int expert, int stage, const wd_streamed_options *o, wd_err *err)
{
    wd_stage_layout *layout = &r->layout[expert][stage], host;
    const bool shared = wd_host_copy_is_shared(&r->copy);
    wd_dit_stage view;
    void *block;
    WD_TRY(wd_stage_lay_out(&host, &pipeline->dit, table, r->weights[expert], stage,
                            wd_host_keeping(o->storage), err));
    if (!host.block_bytes) return WD_OK;
    if (shared) {
        block = wd_host_copy_block(&r->copy, expert, stage);
    } else {
        WD_TRY(take_host(&block, r, host.block_bytes, "teacher weights in host memory", err));
        r->converted[expert][stage] = block;
    }
    if (!r->dry && (!shared || wd_host_copy_fills(&r->copy, expert, stage)))
        WD_TRY(fill(&host, block, o->processor, err));
    wd_stage_view(&view, &host, block);
    for (int i = 0; i < layout->tensors; i++)
        if (view.t[i].data) layout->file[i] = view.t[i];
    layout->staging_bytes = 0;
    return WD_OK;
}

/* What all stages together need. */
typedef struct needs {
    size_t block[WD_STAGE_KINDS], file, casting, widened;
} needs;

static void need(size_t *most, size_t bytes)
{
    if (bytes > *most) *most = bytes;
}

static wd_status open_expert(streamed *r, const wd_pipeline *pipeline, int expert, wd_err *err)
{
    size_t stages = (size_t)r->base.stages;
    const wd_component component = expert ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER;
    WD_TRY(wd_pipeline_open_weights(&r->weights[expert], pipeline, component, err));
    WD_TRY(wd_alloc((void **)&r->layout[expert], stages, sizeof(wd_stage_layout), "stages", err));
    return wd_alloc((void **)&r->converted[expert], stages, sizeof(void *), "stages", err);
}

static wd_status lay_out_expert(streamed *r, needs *n, const wd_pipeline *pipeline,
                                const wd_tensor_table *table, int expert,
                                const wd_streamed_options *o, wd_err *err)
{
    const wd_stage_keeping keeping = {o->storage, false, r->reads_host};
    for (int s = 0; s < r->base.stages; s++) {
        wd_stage_layout *layout = &r->layout[expert][s];
        if (!wd_residency_part_has(o->part, expert, s)) continue;
        WD_TRY(
            wd_stage_lay_out(layout, &pipeline->dit, table, r->weights[expert], s, keeping, err));
        if (!r->from_disk) WD_TRY(convert(r, pipeline, table, expert, s, o, err));
        need(&n->block[wd_stage_kind_of(s, r->base.stages)], layout->block_bytes);
        need(&n->file, layout->reading_bytes);
        need(&n->casting, layout->staging_bytes);
        need(&n->widened, layout->widened_bytes);
    }
    return WD_OK;
}

static wd_status open_slot(streamed *r, wd_stage_kind kind, size_t bytes, wd_err *err)
{
    const char *what = "teacher weights on their way";
    slot *s = &r->slot[r->slots++];
    s->kind = kind;
    WD_TRY(wd_event_open(&s->arrived, r->device, err));
    WD_TRY(wd_event_open(&s->released, r->device, err));
    wd_event_record(s->released, r->copies);
    if (r->reads_host) return take_host(&s->block, r, bytes, what, err);
    return wd_device_alloc(&s->block, r->device, bytes, what, err);
}

static wd_status open_slots(streamed *r, const needs *n, int slots, wd_err *err)
{
    for (int k = 0; k < WD_STAGE_KINDS; k++)
        for (int i = 0; n->block[k] && i < wd_placed_slots((wd_stage_kind)k, slots); i++)
            WD_TRY(open_slot(r, (wd_stage_kind)k, n->block[k], err));
    for (; r->widens && r->wides < slots; r->wides++)
        WD_TRY(wd_device_alloc(&r->wide[r->wides], r->device, n->widened, "widened teacher weights",
                               err));
    if (n->casting)
        WD_TRY(wd_device_alloc(&r->casting, r->device, n->casting,
                               "teacher weights being converted", err));
    return WD_OK;
}

static wd_status start(streamed *r, void *(*work)(void *), wd_err *err)
{
    if (pthread_create(&r->thread, NULL, work, r))
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread to read the teacher's weights");
    r->threaded = true;
    return WD_OK;
}

/* The ranks of each host have one reader; not where there is one rank, which is asked all the
 * same. */
static wd_status open_host_reader(streamed *r, const needs *n, const wd_streamed_options *o,
                                  wd_err *err)
{
    wd_comm *comm = o->part->sharers;
    const wd_host_reader_options options = {.comm = comm,
                                            .experts = r->base.experts,
                                            .stages = r->base.stages,
                                            .layout = r->layout,
                                            .stage_bytes = n->file,
                                            .ahead = o->slots + 1};
    if (comm->host_ranks > 1) r->base.host_bytes += wd_host_reader_share(comm->host_ranks, n->file);
    if (r->dry) return WD_OK;
    WD_TRY(wd_host_reader_open(&r->host_reader, &options, err));
    if (!r->host_reader) return WD_OK;
    WD_TRY(wd_event_open(&r->sent[0], r->device, err));
    return start(r, follow, err);
}

static wd_status open_disk(streamed *r, const needs *n, wd_err *err)
{
    r->stagings = r->reads_host ? 1 : STAGINGS; /* a processor's copies are done at once */
    for (int i = 0; i < r->stagings; i++) {
        WD_TRY(wd_event_open(&r->sent[i], r->device, err));
        WD_TRY(take_host(&r->staging[i], r, n->file, "teacher weights being read", err));
    }
    WD_TRY(wd_file_reader_open(&r->reader, err));
    return r->dry ? WD_OK : start(r, read_ahead, err);
}

wd_status wd_residency_open_streamed(wd_residency **out, const wd_pipeline *pipeline,
                                     const wd_streamed_options *options, wd_err *err)
{
    wd_status status;
    wd_tensor_table table = {0};
    needs n = {0};
    streamed *r;
    WD_TRY(wd_alloc((void **)&r, 1, sizeof *r, "a residency", err));
    r->base = (wd_residency){.vtable = &streamed_vtable,
                             .name = options->from_disk ? "disk" : "offload",
                             .experts = wd_teacher_experts(pipeline),
                             .stages = wd_dit_stages(&pipeline->dit)};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->device = options->device;
    r->from_disk = options->from_disk;
    r->dry = wd_device_is_dry(options->device);
    r->reads_host = wd_device_reads_host(options->device);
    r->widens = options->storage == WD_F16;
    WD_TRY_OUT(wd_queue_open(&r->copies, r->device, err));
    WD_TRY_OUT(wd_dit_table_open(&table, &pipeline->dit, err));
    for (int e = 0; e < r->base.experts; e++) WD_TRY_OUT(open_expert(r, pipeline, e, err));
    if (!r->from_disk)
        WD_TRY_OUT(wd_host_copy_open(&r->copy, options->part, &pipeline->dit, &table, r->weights,
                                     options->storage, r->dry, err));
    r->base.host_bytes = r->copy.share_bytes;
    for (int e = 0; e < r->base.experts; e++)
        WD_TRY_OUT(lay_out_expert(r, &n, pipeline, &table, e, options, err));
    if (!r->dry) wd_host_copy_seal(&r->copy);
    WD_TRY_OUT(open_slots(r, &n, options->slots, err));
    const wd_comm *comm = options->part ? options->part->sharers : NULL;
    if (r->from_disk && comm) WD_TRY_OUT(open_host_reader(r, &n, options, err));
    if (r->from_disk && (!comm || comm->host_ranks == 1)) WD_TRY_OUT(open_disk(r, &n, err));
    *out = &r->base;
out:
    wd_dit_table_close(&table);
    if (status != WD_OK) streamed_close(&r->base);
    return status;
}
