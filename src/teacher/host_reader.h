/* Reads a teacher's stages from the files once for all ranks of a host.
 *
 * Data flow: sweeps as they are announced -> one sequence of stages, the same on all ranks -> the
 * first rank of the host reads it into a ring (dist/ring.h) -> every rank brings those that it uses
 * to its device.
 *
 * A rank may have no share in a sweep, or only in one of its experts: it passes what it does not
 * use. The sequence runs ahead of the sweep that is announced by the first stages of the next one;
 * if another one comes, they are passed by all. */
#ifndef WD_TEACHER_HOST_READER_H
#define WD_TEACHER_HOST_READER_H

#include "dist/comm.h"
#include "teacher/residency.h"
#include "teacher/stage_layout.h"

enum { WD_HOST_READER_BUFFERS = 2 }; /* one is read while the other is sent */

typedef struct wd_host_reader wd_host_reader;

typedef struct wd_host_reader_options {
    wd_comm *comm; /* ranks that all open it, borrowed */
    int experts, stages;
    wd_stage_layout *const *layout; /* [experts][stages], borrowed; a stage without tensors is not
                                     * read */
    size_t stage_bytes;             /* the most of reading_bytes */
    int ahead;                      /* stages of the next sweep */
} wd_host_reader_options;

/* A rank's part of the memory that the ranks of a host have together for it. */
size_t wd_host_reader_share(int host_ranks, size_t stage_bytes);

/* All ranks of the job call it. *out is NULL on a host of one rank. */
wd_status wd_host_reader_open(wd_host_reader **out, const wd_host_reader_options *options,
                              wd_err *err);

/* The memory that is read into, of *bytes, as this rank has it: for who copies from there. */
void *wd_host_reader_memory(const wd_host_reader *reader, size_t *bytes);

/* A sweep of all ranks, and the one after it: as wd_residency_begin. */
void wd_host_reader_begin(wd_host_reader *reader, wd_sweep_experts sweep, unsigned next);

/* ---- one thread of each rank ---- */

typedef struct wd_reading {
    int64_t number; /* in the sequence */
    int expert, stage;
} wd_reading;

/* The next one that this rank uses, as far as is known. false: it has left. */
bool wd_host_reader_next(wd_reading *out, wd_host_reader *reader);

/* Whether the thread that computes waits for a stage: it is in wd_comm.waits_since then, unless
 * this is the rank that reads, and reads. */
void wd_host_reader_wait(wd_host_reader *reader, bool waits);

/* *layout, a copy of that stage's, gets its tensors as they were read: layout->file. They stay
 * until it is done. */
wd_status wd_host_reader_await(wd_stage_layout *layout, wd_host_reader *reader,
                               const wd_reading *reading, wd_err *err);
void wd_host_reader_done(wd_host_reader *reader, const wd_reading *reading);

/* ---- any thread ---- */

/* Whether this rank still uses what came, now that more is announced. */
bool wd_host_reader_wants(wd_host_reader *reader, int64_t number);

/* Calls that wait return; the others read on only if this rank is not the first of the host. */
void wd_host_reader_leave(wd_host_reader *reader);

/* No thread uses it any more. NULL is allowed. */
void wd_host_reader_close(wd_host_reader *reader);

#endif
