/* Checkpoints: a folder per step, which is there whole or not at all.
 *
 * <folder>/step-00000020/
 *     state.safetensors   p.<name>, m.<name>, v.<name>, ema.<name> of the student. The names of
 *                         another network's tensors begin with its prefix (wd_params_names):
 *                         critic.p.<name>. Of a snapshot there is snapshot.p.<name>, in the dtype
 *                         in which passes take it. Other tensors of the caller have names of their
 * own state.json          the step, and the caller's JSON checksums.xxh128    of both, as
 * `xxh128sum -c` reads them
 *
 * Written as <folder>/.tmp-step-00000020, synced, renamed: a kill at any moment leaves the earlier
 * ones and, at worst, a .tmp folder, which the next write removes. checkpoint_list.h says what else
 * the folder of checkpoints may hold, and which checkpoints stay. Tensors are stored by name, so a
 * checkpoint knows nothing of ranks, placement or padding; those of networks that are trained are
 * in F32 whatever the compute dtype. */
#ifndef WD_TRAIN_OUTPUT_CHECKPOINT_H
#define WD_TRAIN_OUTPUT_CHECKPOINT_H

#include "io/file/file.h"
#include "io/tensors/safetensors.h"
#include "train/network/params.h"

/* A tensor of the caller's: in device memory of the queue's device, or in host memory. */
typedef struct wd_checkpoint_tensor {
    const char *name; /* its beginning is not that of a network's tensors */
    wd_tensor tensor;
} wd_checkpoint_tensor;

/* The tensors of a checkpoint: where they are, and in which order the file has them. Borrowed. */
typedef struct wd_checkpoint_tensors {
    wd_params *const *params; /* [networks], with different prefixes */
    int networks;
    const wd_checkpoint_tensor *other; /* [others] */
    int64_t others;
} wd_checkpoint_tensors;

/* Writes the checkpoint of `step` in `folder` (made if missing), replacing one of the same step.
 * `run`: a JSON object of the caller's, borrowed. Waits for the queue. Gradients are lost where
 * params are aside (train/network/params.h). A write that fails leaves nothing behind, and earlier
 * checkpoints as they were; ranks that assist it have then done all of their part, too. */
wd_status wd_checkpoint_write(const char *folder, int64_t step,
                              const wd_checkpoint_tensors *tensors, const json_t *run,
                              wd_queue *queue, wd_err *err);

/* Where ranks share a network one of them writes, and the others call this at the same time. */
void wd_checkpoint_assist(const wd_checkpoint_tensors *tensors, wd_queue *queue);

/* Host memory that wd_checkpoint_write takes while it writes: its buffers and lists. The student's
 * export (export.h) takes less. */
size_t wd_checkpoint_write_bytes(const wd_checkpoint_tensors *tensors);

/* out = a hash of the checkpoint in folder `path`, made of its list of hashes alone. */
wd_status wd_checkpoint_hash(char out[33], const char *path, wd_err *err);

/* What a checkpoint takes on disk, in bytes. */
typedef struct wd_checkpoint_space {
    uint64_t weights, moments, ema; /* of networks that are trained */
    uint64_t snapshot;              /* of a network that is not: copies of weights */
    uint64_t other;                 /* the caller's other tensors */
    uint64_t file;                  /* state.safetensors: its header and all these tensors */
} wd_checkpoint_space;

/* The other files of a checkpoint, state.json and the hashes, are no longer than this beside the
 * caller's texts in state.json. */
enum { WD_CHECKPOINT_REST_BYTES = 16 << 10 };

/* *out = that of a checkpoint of these tensors, whose addresses are not used. */
wd_status wd_checkpoint_space_of(wd_checkpoint_space *out, const wd_checkpoint_tensors *tensors,
                                 wd_err *err);

typedef struct wd_checkpoint {
    int64_t step;
    json_t *run;         /* as given to write; owned */
    wd_safetensors *set; /* owned; for a caller that must see a shape before it loads */
    char path[WD_PATH_MAX];
} wd_checkpoint;

/* Opens the checkpoint in folder `path` ("run/checkpoints/step-00000020") and checks its files'
 * hashes: a damaged one is WD_BAD_FORMAT, with what is wrong. */
wd_status wd_checkpoint_open(wd_checkpoint *out, const char *path, wd_err *err);
void wd_checkpoint_close(wd_checkpoint *checkpoint); /* a zeroed one is fine */

/* *run = the caller's JSON of the checkpoint in folder `path`, the caller's to json_decref, and
 * *step (NULL is allowed) = its step. No hash is checked: for what must be known of a run before
 * there is memory for it. */
wd_status wd_checkpoint_read_run(json_t **run, int64_t *step, const char *path, wd_err *err);

/* Fills the networks' buffers (p, and m, v, ema where params have them) and the other tensors (data
 * is written to); names, shapes and dtypes must agree: what does not is named, with both values. (A
 * snapshot in BF16 is also read from F32, in which earlier versions wrote it.) An EMA that the
 * checkpoint lacks is taken from p. Passes see the weights p when it returns. Waits for the queue.
 * Of shared params: all ranks, each of which reads all of it and keeps its pieces.
 */
wd_status wd_checkpoint_load(const wd_checkpoint *checkpoint, const wd_checkpoint_tensors *tensors,
                             wd_queue *queue, wd_err *err);

#endif
