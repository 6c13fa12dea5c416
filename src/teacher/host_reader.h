/* Reads a teacher's stages from the files once for all ranks of a host.
 *
 * Data flow: sequence of stages, the same on all ranks (teacher/stage_order.h) -> the first rank of
 * the host reads it into a ring (dist/ring.h) -> every rank brings those that it uses to its
 * device, and passes the others. */
#ifndef WD_TEACHER_HOST_READER_H
#define WD_TEACHER_HOST_READER_H

#include "dist/comm.h"
#include "teacher/stage_layout.h"
#include "teacher/stage_order.h"

enum { WD_HOST_READER_BUFFERS = 2 }; /* one is read while the other is sent */

typedef struct wd_host_reader wd_host_reader;

typedef struct wd_host_reader_options {
    wd_comm *comm;                  /* ranks that all open it, borrowed */
    wd_stage_order *order;          /* borrowed */
    wd_stage_layout *const *layout; /* [experts][stages], borrowed */
    size_t stage_bytes;             /* the most of reading_bytes */
} wd_host_reader_options;

/* A rank's part of the memory that the ranks of a host have together for it. */
size_t wd_host_reader_share(int host_ranks, size_t stage_bytes);

/* All ranks of the job call it. *out is NULL on a host of one rank. */
wd_status wd_host_reader_open(wd_host_reader **out, const wd_host_reader_options *options,
                              wd_err *err);

/* The memory that is read into, of *bytes, as this rank has it: for who copies from there. */
void *wd_host_reader_memory(const wd_host_reader *reader, size_t *bytes);

/* Notes whether the thread that computes waits for a stage: wd_comm.waits_since says so then,
 * unless this is the rank that reads, and reads. */
void wd_host_reader_wait(wd_host_reader *reader, bool waits);

/* Waits until a stage is read. *layout = a copy of the stage's, with its tensors where they were
 * read: layout->file. They stay there until wd_host_reader_done. */
wd_status wd_host_reader_await(wd_stage_layout *layout, wd_host_reader *reader,
                               const wd_stage_turn *turn, wd_err *err);

/* This rank has brought the stage, or passes it. */
void wd_host_reader_done(wd_host_reader *reader, const wd_stage_turn *turn);

/* Calls that wait return; the others read on only if this rank is not the first of the host. */
void wd_host_reader_leave(wd_host_reader *reader);

/* No thread uses it any more. NULL is allowed. */
void wd_host_reader_close(wd_host_reader *reader);

#endif
