/* The disk space that a run will need: every file that it writes, by file system.
 *
 * Data flow: sizes of a checkpoint (train/loop/memory_plan.h), of the student
 * (train/output/export.h), of prompt embeddings and of merged or quantised weights that are not in
 * the cache yet -> items, each on the file system of its folder -> compared with what is free
 * there. What the same run has written already is not counted again. */
#ifndef WD_API_PLAN_DISK_PLAN_H
#define WD_API_PLAN_DISK_PLAN_H

#include "api/plan/train_plan.h"
#include "core/text.h"
#include "io/file/disk.h"

enum { WD_DISKS_MAX = 5, WD_DISK_ITEMS_MAX = 19 };

/* When an item is on the disk. A checkpoint that is being written and the student, which comes at
 * the end, are never there together. */
typedef enum wd_disk_while {
    WD_DISK_TO_THE_END,
    WD_DISK_WHILE_SAVING,
    WD_DISK_AT_THE_END
} wd_disk_while;

/* The folder that an item lies in, or below. That of checkpoints lies in the output folder, but may
 * be a link to another file system. */
typedef enum wd_disk_folder {
    WD_DISK_OUTPUT,
    WD_DISK_CHECKPOINTS,
    WD_DISK_CACHE,
    WD_DISK_SHEETS,
    WD_DISK_TARGETS
} wd_disk_folder;

typedef struct wd_disk_item {
    char name[64];
    int disk; /* index of its file system */
    wd_disk_folder folder;
    wd_disk_while phase;
    bool is_bound; /* the bytes are an upper bound; else they are the sizes of the files */
    uint64_t bytes;
} wd_disk_item;

/* A file system. The bytes that the run needs at the same time, and those of them that are known
 * and no upper bounds. */
typedef struct wd_disk {
    wd_disk_space space;
    uint64_t need, least;
} wd_disk;

/* The number of checkpoints in the folder, of those that the run writes at most, and of those of
 * them that it is sure to write. */
typedef struct wd_disk_checkpoints {
    double there, come, sure;
} wd_disk_checkpoints;

typedef struct wd_disk_plan {
    wd_disk disk[WD_DISKS_MAX];
    int disks;
    wd_disk_item item[WD_DISK_ITEMS_MAX];
    int items;
    wd_checkpoint_space checkpoint; /* what is in one */
    uint64_t checkpoint_bytes;      /* all of its files */
    wd_disk_checkpoints checkpoints;
    int kept; /* checkpoints that are there at the end */
} wd_disk_plan;

/* Counts what this rank writes: rank 0 all files, the first rank of every other host the files in
 * its cache folder, the other ranks none. Nothing is created, and no folder needs to exist. */
wd_status wd_disk_plan_make(wd_disk_plan *out, const wd_train_plan *plan,
                            const wd_train_setup *setup, wd_err *err);

/* Whether a file system has too little space for what is known of the run. Upper bounds never count
 * here. */
bool wd__disk_plan_lacks(const wd_disk_plan *disks);

/* WD_DOES_NOT_FIT: a file system has too little space for what is known of the run; the log says
 * what would help. */
wd_status wd_disk_plan_refuse(const wd_disk_plan *disks, const wd_train_setup *setup, wd_err *err);

/* Logs a line for each file system with what the run will write there. It is a warning where what
 * is left free may be less than a tenth of it. */
void wd_disk_plan_log(const wd_disk_plan *disks);

/* The items by file system, and what is in a checkpoint. */
void wd__disk_plan_say(wd_text_builder *builder, const wd_disk_plan *disks);

/* An object with the same; the caller owns it. NULL: no memory. */
json_t *wd__disk_plan_json(const wd_disk_plan *disks);

#endif
