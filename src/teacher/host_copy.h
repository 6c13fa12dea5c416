/* The copy of a teacher's weights that the ranks of a host have together.
 *
 * What a processor uses lies in the checkpoint's files as they are mapped, which all processes
 * share anyway; only tensors that are kept in another dtype than the files have, or that are not
 * aligned there, are copied. What is sent to devices from host memory is copied whole, as it will
 * lie on the device. Either copy is here: each rank of a host makes its share of the stages, and
 * all read all of them. */
#ifndef WD_TEACHER_HOST_COPY_H
#define WD_TEACHER_HOST_COPY_H

#include "dist/shared.h"
#include "teacher/placement.h"
#include "teacher/stage_layout.h"

/* Zeroed: there is none, every rank has its own. */
typedef struct wd_host_copy {
    wd_comm *comm;
    wd_shared *memory; /* NULL on a dry run */
    size_t at[WD_PLACED_EXPERTS_MAX][WD_PLACED_STAGES_MAX];
    int filler[WD_PLACED_EXPERTS_MAX][WD_PLACED_STAGES_MAX]; /* host rank */
    size_t bytes;
    size_t share_bytes; /* of a rank, rounded up: those of a host's ranks add up to it */
} wd_host_copy;

/* For the stages of `part`, if its ranks `sharers` share them (NULL: there are no others); all of
 * them call it. `layout` [experts][stages]: of the blocks. `dry`: it is only counted. */
wd_status wd_host_copy_open(wd_host_copy *out, const wd_placed_part *part, wd_comm *sharers,
                            wd_stage_layout *const *layout, bool dry, wd_err *err);

/* Whether stages are here rather than in memory of each rank's own. */
bool wd_host_copy_is_shared(const wd_host_copy *copy);

/* The stage's block; on a dry run an address that nobody uses. */
void *wd_host_copy_block(const wd_host_copy *copy, int expert, int stage);

/* Whether this rank fills it; on a dry run each would, so that all plan the same. */
bool wd_host_copy_fills(const wd_host_copy *copy, int expert, int stage);

/* All ranks call it once they have filled what they fill, before they use any of it. */
void wd_host_copy_seal(wd_host_copy *copy);
void wd_host_copy_close(wd_host_copy *copy); /* a zeroed one is fine */

#endif
