/* The memory plan of a run: every byte with the name of its purpose, found by running a step dry.
 *
 * Nothing is loaded and nothing computed: headers and shapes are enough. Device memory is what a
 * dry device has counted, host memory what the meter of core/memory.h shows beside it; what the
 * program itself holds (libraries, their kernels, prompts) its caller adds, measured. */
#ifndef WD_TRAIN_LOOP_MEMORY_PLAN_H
#define WD_TRAIN_LOOP_MEMORY_PLAN_H

#include "train/loop/devices.h"
#include "train/loop/samples.h"

enum { WD_MEMORY_ITEMS_MAX = 160, WD_MEMORY_PARTS_MAX = 160, WD_MEMORY_HOST = -1 };

/* The part of a run during which an item is allocated. */
typedef enum wd_memory_phase {
    WD_MEMORY_PROGRAM,    /* from now to the end */
    WD_MEMORY_TOKENS,     /* while prompts are turned into tokens */
    WD_MEMORY_TEXT,       /* while they are encoded */
    WD_MEMORY_CHOOSING,   /* while the blocks are chosen that the student starts from */
    WD_MEMORY_OPENING,    /* while the teacher's weights are brought and converted */
    WD_MEMORY_TRAINING,   /* from then to the end */
    WD_MEMORY_SAVING,     /* while a checkpoint or the student is written */
    WD_MEMORY_SAMPLING,   /* while pictures are drawn */
    WD_MEMORY_VALIDATING, /* while the student is validated, or the states for that are made */
    WD_MEMORY_PHASES
} wd_memory_phase;

typedef struct wd_memory_item {
    const char *name;
    wd_memory_phase phase;
    int place; /* number of the device, or WD_MEMORY_HOST: host memory, a processor's pool too */
    size_t bytes;
} wd_memory_item;

typedef struct wd_memory_plan {
    wd_memory_item item[WD_MEMORY_ITEMS_MAX];
    int items;
    wd_memory_item
        part[WD_MEMORY_PARTS_MAX]; /* parts of items that are planned as a whole, since not
                                    * all parts are allocated at once; counted in no sum */
    int parts;
    size_t mapped_bytes; /* checkpoint files that are read in place: not the run's own memory */
    size_t workspace[WD_PLACED_DEVICES_MAX]; /* of each device's teacher queue; among the items, and
                                              * stated here for other work on that queue */
    double student_flops_per_sample;
    wd_samples_work sheet;                    /* FLOPs of a sheet of samples; 0 without samples */
    double validation_flops;                  /* of one validation; 0 without */
    wd_checkpoint_space checkpoint;           /* on disk: of the phase that has most */
    int64_t student_weights, student_islands; /* elements, padding included; fp32 islands of BF16 */
} wd_memory_plan;

/* "training", as run.json and the log have it. */
const char *wd_memory_phase_name(wd_memory_phase phase);

/* Adds to the item of that name, phase and place, or makes it. */
void wd_memory_plan_add(wd_memory_plan *plan, const char *name, wd_memory_phase phase, int place,
                        size_t bytes);

/* Notes all names of blocks that a dry device has had as parts of an item. */
void wd_memory_plan_add_parts(wd_memory_plan *plan, wd_memory_phase phase, int place,
                              wd_device *dry);

/* Returns the largest item of that place called `name`, or else the largest part; NULL if the plan
 * has neither. */
const wd_memory_item *wd_memory_plan_find(const wd_memory_plan *plan, const char *name, int place);

/* The place that items of a device have. */
static inline int wd_memory_place(const wd_devices *devices, int device)
{
    return device == devices->processor ? WD_MEMORY_HOST : device;
}

/* The largest sum of a place's items at any time of a run; at any time from the start of training.
 */
size_t wd_memory_plan_peak(const wd_memory_plan *plan, int place);
size_t wd_memory_plan_training_peak(const wd_memory_plan *plan, int place);

/* Adds what this rank of a run with this stepper, its validation and these samples (count 0: none)
 * needs on all devices, from when the stepper is opened: where it has phases, the most that one of
 * them needs of each item. Only the devices' descriptions are used. Rank 0's plan includes drawing
 * and writing. `placement` NULL: without the teacher. `*out` is zeroed, or has items already. */
wd_status wd_memory_plan_stepper(wd_memory_plan *out, const wd_stepper_options *options,
                                 const wd_samples_options *samples, const wd_devices *devices,
                                 const wd_placement *placement, wd_err *err);

#endif
