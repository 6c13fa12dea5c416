/* Inside the streamed residency: what its files share.
 *
 * Data flow: the order in which stages are used (teacher/stage_order.h) -> a thread takes one stage
 * after another, waits for an empty slot, and launches what brings the stage there, on a queue of
 * its own -> whoever computes acquires the stage, uses it, and gives the slot back. A stage comes
 *   from host memory: one copy of its block, which is pinned, laid out as on the device, made once,
 *       one for all ranks of a host;
 *   from disk: the thread reads it into a pinned staging, past the page cache (stage_read.h), and
 * the device copies from there; a processor computes from slots in host memory, which are read into
 * without a copy; from disk for several ranks of a host: from the ring that the host's reader
 * fills.
 *
 * Events order the two queues: the one that brings, and the one that computes. */
#ifndef WD_TEACHER_RESIDENCY_STREAMED_IMPL_H
#define WD_TEACHER_RESIDENCY_STREAMED_IMPL_H

#include <pthread.h>

#include "io/file_reader.h"
#include "teacher/host_copy.h"
#include "teacher/host_reader.h"
#include "teacher/residency_kinds.h"
#include "teacher/stage_order.h"

enum { WD_STREAMED_SLOTS_MAX = WD_PLACED_SLOTS_MAX + 2 };

typedef enum wd_slot_state {
    WD_SLOT_EMPTY,
    WD_SLOT_COMING, /* the thread brings a stage */
    WD_SLOT_FILLED, /* its coming is launched */
    WD_SLOT_FAILED,
    WD_SLOT_IN_USE
} wd_slot_state;

/* A place of one stage. */
typedef struct wd_slot {
    wd_stage_kind kind; /* of the stages that it is for */
    void *block;        /* device memory; host memory for a processor */
    wd_event *arrived, *released;
    wd_slot_state state;
    wd_stage_turn turn; /* of the stage that is there, or was there last */
    wd_dit_stage view;
    wd_err error;
} wd_slot;

typedef struct wd_streamed {
    wd_residency base;
    wd_device *device;
    wd_queue *copies; /* of `device`, ours */
    bool from_disk, reads_host;
    bool dry; /* memory is counted, not taken */
    wd_safetensors *weights[WD_PLACED_EXPERTS_MAX];
    wd_stage_layout *layout[WD_PLACED_EXPERTS_MAX]; /* [stages]: from where it is to a slot */
    void **block[WD_PLACED_EXPERTS_MAX]; /* [stages] in host memory; NULL: it comes from disk */
    wd_host_copy copy;
    bool registered;          /* with the device, or the memory of the reader that ranks share */
    wd_progress_part loading; /* into host memory */
    wd_stage_order *order;
    unsigned experts; /* bit e: the announced sweep has states of expert e */
    wd_slot slot[WD_STREAMED_SLOTS_MAX];
    int slots;
    pthread_mutex_t lock; /* of slots' states and `closing` */
    pthread_cond_t changed;
    pthread_t thread; /* brings stages */
    bool threaded, closing;
    void *casting; /* device: a tensor that is converted there */
    void *wide;    /* device: the stage that is computed, if it is widened */
    /* disk */
    wd_file_reader *reader;
    void *staging[WD_PLACED_STAGINGS];  /* host: what is read and is not used as it was read */
    wd_event *sent[WD_PLACED_STAGINGS]; /* from there */
    int stagings;
    int64_t staged;              /* stages that were read so far */
    wd_host_reader *host_reader; /* instead, where ranks share one */
} wd_streamed;

/* ---- host memory: residency_streamed_host.c ---- */

/* Host memory for weights, which the device copies from: on a dry one an address that nobody uses.
 */
wd_status wd_streamed_take_host(void **out, wd_streamed *r, size_t bytes, const char *what,
                                wd_err *err);
void wd_streamed_give_host(const wd_streamed *r, void *block);

/* As wd_slot_launch, for a stage in host memory: one copy. */
void wd_streamed_bring_block(wd_streamed *r, wd_slot *slot);

/* ---- slots: residency_streamed_slots.c ---- */

wd_status wd_slot_open(wd_streamed *r, wd_stage_kind kind, size_t bytes, wd_err *err);
void wd_slots_close(wd_streamed *r);

/* Launches what brings a stage that was read to the slot, for work that waits for slot->arrived. */
void wd_slot_launch(wd_streamed *r, wd_slot *slot, const wd_stage_layout *layout);

/* An empty slot for a stage, which is coming there from now on; of several empty slots the one that
 * was used first, whose work is done first. Waits for it. NULL: the residency is closing. */
wd_slot *wd_slot_await_empty(wd_streamed *r, const wd_stage_turn *turn);

/* The stage that was coming to the slot is launched, or has failed with slot->error. If it is not
 * wanted any more, the slot is empty. */
void wd_slot_set(wd_streamed *r, wd_slot *slot, wd_slot_state state);

/* Empties the slots of stages that came and are not wanted any more. */
void wd_slots_drop_unwanted(wd_streamed *r);

/* *out = the slot of a stage, in use from now on; waits until the stage's coming is launched, or
 * has failed, which is the error. */
wd_status wd_slot_take(wd_slot **out, wd_streamed *r, int expert, int stage, wd_err *err);

/* Work launched on `queue` so far was the last to use the stage. */
void wd_slot_give_back(wd_streamed *r, int expert, int stage, wd_queue *queue);

/* ---- bringing: residency_streamed_bring.c ---- */

/* Starts the thread that brings stages. */
wd_status wd_streamed_start(wd_streamed *r, wd_err *err);

/* Ends it; then nothing but close may be called. */
void wd_streamed_end(wd_streamed *r);

/* ---- from disk: residency_streamed_disk.c ---- */

/* Opens what reads stages from the files. `reading_bytes`, `converting_bytes`: the most of a
 * stage's layout. */
wd_status wd_streamed_open_disk(wd_streamed *r, size_t reading_bytes, size_t converting_bytes,
                                const wd_streamed_options *options, wd_err *err);
void wd_streamed_close_disk(wd_streamed *r); /* once its copies are done */

/* Reads a stage and launches what brings it to its slot. */
wd_status wd_streamed_bring_file(wd_streamed *r, wd_slot *slot);

/* Launches what brings a stage from the ring of the host's reader to its slot. */
wd_status wd_streamed_bring_read(wd_streamed *r, wd_slot *slot);

#endif
