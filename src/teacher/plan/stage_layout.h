/* A stage of the teacher in memory: which of its tensors lie where in a block, and how they get
 * there from a checkpoint's file. All residencies share this code.
 *
 * A tensor that is quantised in the file is kept as it is there, whatever the storage dtype, and
 * widened to the compute dtype when the stage is used. Its scales are a part of the stage
 * as its tensors are: they are read, copied and counted by the same code. */
#ifndef WD_TEACHER_PLAN_STAGE_LAYOUT_H
#define WD_TEACHER_PLAN_STAGE_LAYOUT_H

#include "dev/device.h"
#include "io/file/file_reader.h"
#include "io/tensors/safetensors.h"
#include "model/tables/dit_table.h"
#include "teacher/plan/placement.h"

enum { WD_STAGE_PARTS_MAX = 2 * WD_DIT_BLOCK_SLOTS };

/* The address of blocks that are only counted. */
#define WD_STAGE_NOWHERE ((char *)((uintptr_t)1 << 30))

typedef struct wd_stage_layout {
    int tensors;                         /* parts [0, tensors) are the stage's slots */
    int parts;                           /* parts [tensors, parts) are scales */
    int weight_slot[WD_STAGE_PARTS_MAX]; /* part i belongs to the tensor weight_slot[i] */
    size_t offset[WD_STAGE_PARTS_MAX];   /* in the block; SIZE_MAX: used where it is mapped */
    const wd_safetensors_entry *entry[WD_STAGE_PARTS_MAX]; /* NULL: the checkpoint has none */
    wd_tensor file[WD_STAGE_PARTS_MAX];                    /* as mapped */
    wd_tensor stored[WD_STAGE_PARTS_MAX]; /* dtype and shape when kept; data mapped or NULL */
    wd_dtype rounded[WD_DIT_BLOCK_SLOTS]; /* values of a quantised tensor are rounded to this dtype,
                                           * which it would have in an unquantised file */
    wd_stage_size size;
    size_t block_bytes; /* size.host where tensors are used in place, else size.device */
    bool unaligned;     /* a tensor that is converted is not aligned in the file */
    bool pinned;        /* `file` lies where copies of the device may name it, not mapped */
    bool may_stop;      /* wd_stage_bring leaves off where the job is to stop */
} wd_stage_layout;

/* The tensors of an expert on disk: those in the headers of its files, or where `weights` is NULL,
 * all of the expert's, in `dtype` but for those that are always fp32. These are at addresses that
 * lie apart and must not be read. */
typedef struct wd_teacher_files {
    const wd_safetensors *weights;
    wd_dtype dtype;
    wd_dtype quantised; /* where `weights` is NULL: that of matrices of blocks, with a scale for
                         * each row (model/files/overlay.h); WD_F32: they have `dtype`, too */
} wd_teacher_files;

/* *out = where the tensors of a stage lie, kept in dtype `storage`. `in_place`: tensors that have
 * this dtype in the file and are aligned there are used where they are mapped. Files that are
 * not written yet are taken to be aligned. */
wd_status wd_stage_lay_out(wd_stage_layout *out, const wd_dit_config *config,
                           const wd_tensor_table *table, const wd_teacher_files *files, int stage,
                           wd_dtype storage, bool in_place, wd_err *err);

/* Reads the stage's tensors past the page cache to `room` (size.reading), one after another, each
 * in wd_file_reader_room of its bytes, wherever it lies in its file. `room` begins at a multiple of
 * WD_READ_PAGE, or the page cache is used. */
wd_status wd_stage_read(char *room, const wd_stage_layout *layout, wd_file_reader *reader,
                        wd_err *err);

/* The stage was read to `room`: layout->file says so. A tensor is as far after the start of its
 * room as it is after the start of a page of the file, or at the start of its room where its dtype
 * would not be aligned otherwise. */
void wd_stage_was_read(wd_stage_layout *layout, char *room);

/* Fills `block` from layout->file, launching on `queue`; views of it in *stored. `staging`: device
 * memory of size.casting, used in the queue's order for tensors that are converted and that the
 * device cannot read where they are. Returns when copies are done, unless
 * layout->pinned. With layout->may_stop it brings some tens of megabytes at a time, and no more
 * once a stop is requested: what is in the block then must not be used. */
void wd_stage_bring(wd_dit_stage *stored, const wd_stage_layout *layout, char *block, void *staging,
                    wd_queue *queue);

/* *stored = views of the tensors, in `block` or where they are mapped. On a dry device any address
 * will do as a block. */
void wd_stage_view(wd_dit_stage *stored, const wd_stage_layout *layout, char *block);

/* Where part `i` is, once `block` is filled. */
void *wd_stage_part_place(const wd_stage_layout *layout, int i, char *block);

/* The F16 tensors of *stage become F32 ones in `to` (size.widened), and the quantised ones F32 or
 * BF16 ones, as their layout says, by operations on `queue`. */
void wd_stage_widen(wd_dit_stage *stage, const wd_stage_layout *layout, char *to, wd_queue *queue);

/* *out = the sizes of a teacher's stages, which are those of their layouts, `files` [experts], kept
 * in dtype `storage`; FLOPs stay 0. Pure: tensor table and dtypes are enough, so that a published
 * model is planned without its files. */
wd_status wd_teacher_size_of(wd_teacher_size *out, const wd_dit_config *config, int experts,
                             const wd_teacher_files *files, wd_dtype storage, wd_err *err);

#endif
