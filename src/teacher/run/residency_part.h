/* A part of a teacher in memory: its stages of one home on one device. Private to src/teacher/run.
 *
 * Stages that stay on the device are there once the part is open. Others are streamed: the order in
 * which stages are used (teacher/run/stage_order.h) -> a thread takes one stage after another,
 * waits for an empty buffer, and launches what brings the stage there, on a queue of its own ->
 * whoever computes acquires the stage, uses it, and gives the buffer back. A stage comes from host
 * memory: one copy of its block, which is pinned, laid out as on the device, made once, one for all
 * ranks of a host; from disk: the thread reads it into a pinned staging, past the page cache
 * (wd_stage_read), and the device copies from there; a processor computes from buffers in host
 * memory, which are read into without a copy; from disk for several ranks of a host: from the ring
 * that the host's reader fills.
 *
 * Events order the two queues: the one that brings, and the one that computes. */
#ifndef WD_TEACHER_RUN_RESIDENCY_PART_H
#define WD_TEACHER_RUN_RESIDENCY_PART_H

#include <pthread.h>

#include "io/file/file_reader.h"
#include "job/comm/ring.h"
#include "job/comm/shared.h"
#include "model/files/pipeline.h"
#include "teacher/plan/placement_bytes.h"
#include "teacher/plan/stage_layout.h"
#include "teacher/run/stage_order.h"

enum { WD_PART_BUFFERS_MAX = WD_STREAM_BUFFERS_MAX + 2 };

typedef enum wd_stage_buffer_state {
    WD_BUFFER_EMPTY,
    WD_BUFFER_COMING, /* the thread is bringing a stage */
    WD_BUFFER_FILLED, /* all work that brings the stage is launched */
    WD_BUFFER_FAILED, /* the stage could not be brought */
    WD_BUFFER_IN_USE  /* the stage is acquired */
} wd_stage_buffer_state;

/* Memory for one streamed stage at a time. */
typedef struct wd_stage_buffer {
    wd_stage_kind kind; /* of the stages that it takes */
    void *block;        /* device memory; host memory for a processor */
    wd_event *arrived, *released;
    wd_stage_buffer_state state;
    wd_stage_turn turn; /* of the stage that is there, or was there last */
    wd_dit_stage view;
    wd_err error;
} wd_stage_buffer;

typedef struct wd_residency_part {
    int stages;                      /* of an expert; the part has some of them */
    size_t mapped_bytes, host_bytes; /* as those of a residency */
    wd_home home;
    wd_device *device;
    bool reads_host;
    bool dry; /* memory is counted, not taken */
    wd_safetensors *weights[WD_PLACED_EXPERTS_MAX];
    wd_stage_layout *layout[WD_PLACED_EXPERTS_MAX]; /* [stages]: on the device */
    void **block[WD_PLACED_EXPERTS_MAX]; /* [stages] where it lives; NULL: in the files */
    size_t block_bytes;                  /* of all its blocks */
    wd_comm *sharers;  /* the ranks that share host memory or a reader; NULL: there are none */
    bool shares;       /* ranks of this host share its blocks, of which each rank fills some */
    wd_shared *shared; /* the memory of shared blocks, one after another; NULL on a dry run */
    bool registered;   /* the device knows the memory of `shared`, or of `ring` */
    void *wide;        /* device: the stage that is computed, if it is widened */
    /* streamed */
    wd_queue *copies;   /* of `device`, ours */
    unsigned announced; /* bit e: the announced sweep has states of expert e */
    wd_stage_buffer buffer[WD_PART_BUFFERS_MAX];
    int buffers;
    pthread_mutex_t lock; /* of buffers' states, of `order`, and of what follows it */
    pthread_cond_t changed;
    wd_stage_order order;
    int64_t next_brought, next_read; /* turns: the next one of the thread that brings, and of the
                                      * thread that reads; INT64_MAX: no thread reads here */
    bool closing;                    /* threads take no further turn */
    pthread_t thread;                /* brings stages */
    bool threaded;
    void *casting; /* device: a tensor that is converted there */
    /* disk */
    wd_file_reader *reader;
    void *staging[WD_PLACED_STAGINGS];  /* host: what is read and is not used as it was read */
    wd_event *sent[WD_PLACED_STAGINGS]; /* from there */
    int stagings;
    int64_t staged; /* stages that were read so far */
    /* instead, where ranks of a host share a reader, which fills a ring for all of them */
    wd_ring *ring;
    pthread_t reading_thread;
    bool reading_threaded; /* this rank is the one that reads, and its thread runs */
    bool is_reading;       /* that thread reads a file; under `lock` */
    bool is_waiting;       /* the thread that computes waits for a stage; under `lock` */
} wd_residency_part;

/* ---- residency_part.c ---- */

typedef struct wd_residency_part_options {
    const wd_pipeline *pipeline; /* borrowed during the call */
    const wd_component *only;    /* this component is the only expert; NULL: the teacher's are */
    wd_placed_stages stages;     /* the placement is borrowed while the part is open */
    wd_comm *sharers; /* ranks that all open this part: those of a host share its host memory.
                       * Borrowed; NULL: there are no others */
    wd_dtype storage;
    wd_queue *queue;     /* of the device, which is borrowed; used during the call */
    wd_queue *processor; /* used during the call, for weights in host memory; else NULL */
} wd_residency_part_options;

wd_status wd__residency_part_open(wd_residency_part **out, const wd_residency_part_options *options,
                                  wd_err *err);
void wd__residency_part_close(wd_residency_part *part); /* NULL is allowed */

/* As the functions of a residency. */
void wd__residency_part_begin(wd_residency_part *part, wd_sweep_experts sweep,
                              wd_sweep_experts next);
wd_status wd__residency_part_acquire(wd_residency_part *part, wd_dit_stage *out, int expert,
                                     int stage, wd_queue *queue, wd_err *err);
void wd__residency_part_release(wd_residency_part *part, int expert, int stage, wd_queue *queue);

/* Host memory for weights, which the device copies from: on a dry one an address that nobody uses.
 */
wd_status wd__residency_part_take_host(void **out, wd_residency_part *part, size_t bytes,
                                       const char *what, wd_err *err);
void wd__residency_part_give_host(const wd_residency_part *part, void *block);

/* As wd__stage_buffer_launch, for a stage in host memory: one copy. */
void wd__residency_part_bring_block(wd_residency_part *part, wd_stage_buffer *buffer);

/* ---- buffers: residency_buffers.c ---- */

wd_status wd__stage_buffer_open(wd_residency_part *r, wd_stage_kind kind, size_t bytes,
                                wd_err *err);
void wd__stage_buffers_close(wd_residency_part *r);

/* Launches what brings a stage that was read to the buffer, for work that waits for
 * buffer->arrived. */
void wd__stage_buffer_launch(wd_residency_part *r, wd_stage_buffer *buffer,
                             const wd_stage_layout *layout);

/* *out = the buffer of a stage, in use from now on. Waits until the stage is brought, as far as
 * launches go; if that failed, returns the error. */
wd_status wd__stage_buffer_take(wd_stage_buffer **out, wd_residency_part *r, int expert, int stage,
                                wd_err *err);

/* Work launched on `queue` so far was the last to use the stage. */
void wd__stage_buffer_give_back(wd_residency_part *r, int expert, int stage, wd_queue *queue);

/* Waits for the turn *next, and counts it up. false: the part is closing. */
bool wd__residency_part_next_turn(wd_stage_turn *out, wd_residency_part *r, int64_t *next);

/* Starts the thread that brings stages. */
wd_status wd__residency_part_start(wd_residency_part *r, wd_err *err);

/* Ends that thread, and all waiting for turns and for the ring; then nothing but close may be
 * called. */
void wd__residency_part_end(wd_residency_part *r);

/* ---- from disk: residency.c ---- */

/* Opens what reads stages from the files. `reading_bytes`, `converting_bytes`: the most of a
 * stage's layout. `sharers`: as in the part's options; all of them call it. A host of several ranks
 * gets a ring, which its first rank begins to fill. */
wd_status wd__residency_part_open_disk(wd_residency_part *r, size_t reading_bytes,
                                       size_t converting_bytes, wd_comm *sharers, wd_err *err);
void wd__residency_part_close_disk(wd_residency_part *r); /* once its copies are done, after end */

/* Reads a stage and launches what brings it to its buffer. */
wd_status wd__residency_part_bring_file(wd_residency_part *r, wd_stage_buffer *buffer);

/* ---- from the ring that a host's reader fills: residency.c ---- */

/* Waits until a stage is read, and launches what brings it from the ring to its buffer. */
wd_status wd__residency_part_bring_read(wd_residency_part *r, wd_stage_buffer *buffer);

/* This rank has brought the stage, or does not want it: its place in the ring is free. */
void wd__residency_part_pass(wd_residency_part *r, const wd_stage_turn *turn);

/* Call this when r->is_waiting or r->is_reading has changed: wd_comm.waits_since says since when
 * the thread that computes waits, unless this is the rank that reads, and reads. The caller has the
 * lock. */
void wd__residency_part_note_wait(wd_residency_part *r);

#endif
