/* A store of targets: a folder with the states of a teacher's trajectories and its velocities
 * there, which one run writes as it makes them, and others train from without a teacher.
 *
 *   targets.json                     what the targets are of; the last file that a new store gets
 *   prompts.jsonl                    the prompts, in the order in which their numbers count
 *   targets-<first>.safetensors      the targets from that number on, in 12 digits; tensors:
 *     targets     BF16 [n, 2, C, H, W]   of each target its state, and the velocity there
 *     sigma       F32 [n]                the state's noise level
 *     timestep    F32 [n]                the same as the teacher is given it
 *     prompt      I64 [n]                the prompt's number
 *     checksum    U8 [n, 8]              XXH3-64 of a target's two tensors, and of the three above
 *
 * A file is there as a whole or not at all. Files follow one another without a gap, so an
 * interrupted run leaves a store with fewer targets, and goes on with it when it is resumed.
 * Numbers, noise levels and prompts follow from targets.json, too (train/targets/trajectory.h): the
 * tensors say them for other programs, and must agree. Files are mapped, and none is trusted. */
#ifndef WD_TRAIN_TARGETS_TARGET_STORE_H
#define WD_TRAIN_TARGETS_TARGET_STORE_H

#include "io/file/file.h"
#include "io/json/json.h"
#include "train/targets/trajectory.h"

enum { WD_STORE_KEY_MAX = 17 };

/* Elements of a state's latents. */
typedef struct wd_store_shape {
    int64_t channels, height, width;
} wd_store_shape;

static inline int64_t wd_store_state_count(const wd_store_shape *shape)
{
    return shape->channels * shape->height * shape->width;
}

/* ---- reading ---- */

typedef struct wd_target_store wd_target_store;

/* Opens the store at `folder`: reads its targets.json, and maps its files, whose headers it checks.
 */
wd_status wd_target_store_open(wd_target_store **out, const char *folder, wd_err *err);
void wd_target_store_close(wd_target_store *store); /* NULL is allowed */

const char *wd_target_store_folder(const wd_target_store *store);
int64_t wd_target_store_count(const wd_target_store *store);  /* of targets, at least 1 */
uint64_t wd_target_store_bytes(const wd_target_store *store); /* of its files of targets */
const wd_store_shape *wd_target_store_shape(const wd_target_store *store);
const wd_trajectory_options *wd_target_store_trajectory(const wd_target_store *store);
/* The object "run" of targets.json: facts of the run that made the targets, unchecked. */
const json_t *wd_target_store_run(const wd_target_store *store);
/* Says which store it is: 16 hex digits of what targets.json says. */
const char *wd_target_store_key(const wd_target_store *store);

/* Tells the kernel that a target will be read soon. */
void wd__target_store_will_need(const wd_target_store *store, int64_t target);
/* Checks a target, once: its checksum, that it is finite, its noise level and its prompt. The error
 * names its file. */
wd_status wd__target_store_check(wd_target_store *store, int64_t target, wd_err *err);
bool wd__target_store_is_checked(const wd_target_store *store, int64_t target);
/* The state of a target, or its velocity: [state_count] bf16, mapped. It must have been checked. */
const uint16_t *wd__target_store_state(const wd_target_store *store, int64_t target);
const uint16_t *wd__target_store_velocity(const wd_target_store *store, int64_t target);

/* ---- writing ---- */

/* Where a run's targets are stored, and what targets.json will say of them; all borrowed. */
typedef struct wd_store_options {
    const char *folder;
    wd_store_shape shape;
    const json_t *run;         /* facts for wd_target_store_run */
    const char *const *prompt; /* [trajectory.prompts] */
} wd_store_options;

/* Bytes of `targets` targets of that shape on disk, roughly: headers are not counted. */
double wd_target_store_size(const wd_store_shape *shape, double targets);

/* Checks that a run may store targets in that folder: one that is missing or empty, or with
 * `resumed` a store of the same targets. WD_INVALID_ARGUMENT: it has other things in it, which stay
 * as they are. */
wd_status wd_target_store_check_folder(const char *folder, bool resumed, wd_err *err);

/* Checks that the folder of a run that is resumed has that run's targets. WD_MISMATCH: it has those
 * of another one. */
wd_status wd_target_store_check_resumed(const wd_store_options *options,
                                        const wd_trajectory_options *trajectory, wd_err *err);

typedef struct wd_target_writer wd_target_writer;

/* Opens a writer of targets from number 0 on. Nothing is written or looked at yet. `options` and
 * `trajectory` are copied, but not what they point to. */
wd_status wd__target_writer_open(wd_target_writer **out, const wd_store_options *options,
                                 const wd_trajectory_options *trajectory, wd_err *err);
void wd__target_writer_close(wd_target_writer *writer); /* what was not flushed is lost */

/* The next target is number `first`: those that the store has from there on will be replaced. */
void wd__target_writer_go_on(wd_target_writer *writer, int64_t first);

/* Adds the next target: its state and its velocity [2, state_count] bf16. WD_NOT_FINITE: it is not.
 * A full file is written; if there is no space for it, that is a warning, and no more is stored. */
wd_status wd__target_writer_put(wd_target_writer *writer, const uint16_t *target, wd_err *err);

/* Writes what was put, so that it is there whatever happens to the run. */
wd_status wd__target_writer_flush(wd_target_writer *writer, wd_err *err);

#endif
