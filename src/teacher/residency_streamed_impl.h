/* Inside the streamed residency: what its files share.
 *
 * Data flow, host: a block per stage, pinned, laid out as on the device, made once, one for all
 * ranks of a host -> one copy on a queue of our own -> slot. Disk: file -> pinned staging
 * -> slot, by a thread that reads ahead; the disk writes whole pages into the staging, past the
 * page cache, and the device copies from there (stage_read.h). A processor computes from slots in
 * host memory, which are read into without a copy. Where ranks of a host share the part: file ->
 * ring of the host's reader -> slot, by a thread that follows it.
 *
 * Events order the two queues: the one that brings, and the one that computes. */
#ifndef WD_TEACHER_RESIDENCY_STREAMED_IMPL_H
#define WD_TEACHER_RESIDENCY_STREAMED_IMPL_H

#include <pthread.h>

#include "io/file_reader.h"
#include "teacher/host_copy.h"
#include "teacher/host_reader.h"
#include "teacher/residency_kinds.h"

enum { WD_STREAMED_SLOTS_MAX = WD_PLACED_SLOTS_MAX + 2 };

typedef enum wd_slot_state {
    WD_SLOT_EMPTY,
    WD_SLOT_WANTED,
    WD_SLOT_FILLED,
    WD_SLOT_FAILED
} wd_slot_state;

/* A place of one stage. */
typedef struct wd_slot {
    wd_stage_kind kind; /* of the stages that it is for */
    void *block;        /* device memory; host memory for a processor */
    wd_event *arrived, *released;
    int expert, stage;
    bool in_use;
    int64_t asked; /* when last, in calls; of a host's reader: its number */
    wd_slot_state state;
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
    wd_slot slot[WD_STREAMED_SLOTS_MAX];
    int slots;
    int64_t asked;
    pthread_mutex_t lock; /* of slots' states and `closing` */
    pthread_cond_t changed;
    void *casting; /* device: a tensor that is converted there */
    void *wide;    /* device: the stage that is computed, if it is widened */
    /* disk */
    wd_file_reader *reader;
    void *staging[WD_PLACED_STAGINGS]; /* host: what is read and is not used as it was read */
    size_t staging_bytes[WD_PLACED_STAGINGS]; /* the first one takes any stage */
    wd_event *sent[WD_PLACED_STAGINGS];       /* from there */
    int stagings;
    int64_t staged;              /* stages that were read so far */
    wd_host_reader *host_reader; /* instead, where ranks share one */
    pthread_t thread;
    bool threaded, closing;
} wd_streamed;

/* ---- host memory: residency_streamed_host.c ---- */

/* Host memory for weights, which the device copies from: on a dry one an address that nobody uses.
 */
wd_status wd_streamed_take_host(void **out, wd_streamed *r, size_t bytes, const char *what,
                                wd_err *err);
void wd_streamed_give_host(const wd_streamed *r, void *block);

/* As wd_slot_launch, of a stage in host memory: one copy. */
void wd_streamed_bring_block(wd_streamed *r, wd_slot *slot);

/* ---- slots: residency_streamed_slots.c ---- */

wd_status wd_slot_open(wd_streamed *r, wd_stage_kind kind, size_t bytes, wd_err *err);
void wd_slots_close(wd_streamed *r);

/* Launches what brings a stage that was read to the slot, for work that waits for slot->arrived. */
void wd_slot_launch(wd_streamed *r, wd_slot *slot, const wd_stage_layout *layout);

/* The slot that has the stage or gets it; waits for a free one only if it `must` be, else it may
 * be NULL. */
wd_slot *wd_slot_ask(wd_streamed *r, int expert, int stage, bool must);

/* Waits until the stage's coming is launched, or has failed; it is in use then, until it is given
 * back: by work on a queue so far. */
wd_status wd_slot_take(wd_slot **out, wd_streamed *r, int expert, int stage, wd_err *err);
void wd_slot_give_back(wd_streamed *r, int expert, int stage, wd_queue *queue);

/* For the thread that reads: the wanted one that was asked for first; NULL: it is closing. */
wd_slot *wd_slot_await_wanted(wd_streamed *r);

/* The same that follows a host's reader: an empty one for what it brings, of several the one that
 * was used first, whose work is done first; NULL: it is closing. */
wd_slot *wd_slot_await_empty(wd_streamed *r, const wd_reading *reading);

/* What came to it is there, or has failed with slot->error; or nobody wants it any more. */
void wd_slot_set(wd_streamed *r, wd_slot *slot, wd_slot_state state);

/* What the host's reader has brought, and is not wanted any more, makes room. */
void wd_slots_drop_unwanted(wd_streamed *r);

/* ---- reading ahead: residency_streamed_disk.c ---- */

/* For stages of so many bytes in the files, as wd_placed_read has them, at most `converting_bytes`
 * of one in another dtype than is kept, in `slots` of blocks; starts the thread. */
wd_status wd_streamed_open_disk(wd_streamed *r, const size_t file_bytes[WD_PLACED_STAGINGS],
                                size_t converting_bytes, const wd_streamed_options *o, wd_err *err);

/* Ends the thread; then nothing but close may be called. */
void wd_streamed_end_disk(wd_streamed *r);
void wd_streamed_close_disk(wd_streamed *r);

#endif
