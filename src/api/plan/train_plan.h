/* Folder api/plan. What a job will take, in memory, disk and time: the search for a plan, and how
 * it is printed.
 *
 * The plan of a run: the placement of the teacher, the memory of all parts, and whether it fits.
 *
 * Data flow: options, devices -> budgets, sizes, rates -> the strategy's plan
 * (teacher/plan/planner.h)
 * -> window, micro-batch, placement -> the memory plan by a dry run (train/loop/memory_plan.h). */
#ifndef WD_API_PLAN_TRAIN_PLAN_H
#define WD_API_PLAN_TRAIN_PLAN_H

#include "api/plan/teacher_map.h"
#include "teacher/plan/planner.h"
#include "train/loop/memory_plan.h"

/* The reason why sample sheets are drawn or not: see api/plan/sheets.h. */
typedef enum wd_sheets {
    WD_SHEETS_ASKED,     /* --save_samples decides; or nothing fits with or without them */
    WD_SHEETS_CHEAP,     /* drawn, since they take little time */
    WD_SHEETS_TOO_SLOW,  /* not drawn, since they would take much time */
    WD_SHEETS_TOO_LARGE, /* not drawn, since the run would not fit into memory */
    WD_SHEETS_UNKNOWN,   /* not drawn, since the length of the run is not known */
    WD_SHEETS_UNPLANNED  /* not planned, since a preset has no VAE */
} wd_sheets;

/* Why the optimiser's state is where it is: see api/plan/optimizer_place.h. */
typedef enum wd_place_reason {
    WD_PLACE_GIVEN, /* the options say so, or nothing asks for another place */
    WD_PLACE_TO_FIT,
    WD_PLACE_FOR_SHEETS,
    WD_PLACE_FOR_SPEED
} wd_place_reason;

typedef struct wd_train_plan {
    wd_devices *devices; /* borrowed */
    wd_memory_plan text; /* memory of encoding the prompts */
    /* Memory of everything but the teacher, including `text`: with sheets decoded on the device of
     * `map`, and on the processor, if input.decoding.processor_may. */
    wd_memory_plan without_teacher[2];
    wd_planner_input input;
    uint8_t *expert;                /* memory of the input's array of experts */
    char weights_file[WD_PATH_MAX]; /* a file of the teacher's weights; "": it has none */
    uint64_t
        merged_bytes; /* of weights with LoRAs that are still to be written to the cache folder */
    wd_planner *planner;
    wd_teacher_map map;
    size_t host_budget;
    size_t program_bytes; /* host memory that is measured instead of planned: libraries, kernels,
                             prompts, and some slack; 0: not measured */
    bool no_teacher;      /* targets are stored: all strategies are the same */
    double step_samples;  /* of all ranks */
    wd_sheets sheets;
    double sheets_share; /* share of the time between two sheets that drawing one takes */
    wd_place_reason place_reason;
    wd_state_place place_before; /* the place that was not taken, for that reason */
    double seconds_before;       /* of a step with the optimiser's state there */
    int64_t reuse_usual;         /* a target's uses without --target_reuse auto; 0: not asked */
    double reuse_usual_seconds;  /* of a step with that */
    wd_strategy asked;           /* the strategy of the options, or the default */
    wd_strategy_plan chosen;
} wd_train_plan;

/* Opens a planner for the run and chooses its plan, which sets window and micro-batch of *setup's
 * stepper. If --save_samples is auto, the plan includes sample sheets. `text`: the memory of
 * encoding the prompts. *out must not be moved. The caller checks whether the chosen plan fits. */
wd_status wd_train_plan_open(wd_train_plan *out, wd_train_setup *setup, wd_devices *devices,
                             const wd_teacher_map *map, const wd_memory_plan *text, wd_err *err);

/* Measures the memory of the program itself, after planning has made the kernels of all plans.
 * Chooses again with that much less host memory, and decides whether sample sheets are drawn
 * (api/plan/sheets.h). All ranks call it. */
wd_status wd_train_plan_count_program(wd_train_plan *plan, wd_train_setup *setup, wd_err *err);

/* Opens a new planner for the current input of the plan, and chooses. */
wd_status wd__train_plan_choose(wd_train_plan *plan, wd_err *err);

/* *out = the plan of the same run with the current options of setup's stepper, on the same machine;
 * decides about sample sheets (wd__sheets_choose). The planner of *plan stays open. All ranks call
 * it. */
wd_status wd__train_plan_again(wd_train_plan *out, const wd_train_plan *plan, wd_train_setup *setup,
                               wd_err *err);

/* Plans a run with other options on the same machine, like the functions above, with the
 * measurements of `like`. WD_DOES_NOT_FIT: it fits under no strategy. */
wd_status wd__train_plan_open_like(wd_train_plan *out, wd_train_setup *setup,
                                   const wd_train_plan *like, wd_err *err);
/* The same, but of a run that fits under no strategy it makes the plan, too, which says what is
 * missing. */
wd_status wd__train_plan_open_whole(wd_train_plan *out, wd_train_setup *setup,
                                    const wd_train_plan *like, wd_err *err);
void wd_train_plan_close(wd_train_plan *plan); /* a zeroed struct is allowed */

/* A run with other options than the one that is planned: too large for a small stack. */
typedef struct wd_train_variant {
    wd_train_setup setup; /* a shallow copy */
    wd_train_plan plan;
} wd_train_variant;

/* Copies the set-up, with the window and the micro-batch of the options, not those that its plan
 * has chosen. The caller then changes out->setup. */
void wd__train_variant_begin(wd_train_variant *out, const wd_train_setup *setup);

/* Plans it on the machine of `like`: variant->plan.chosen is the plan that is chosen, the rest of
 * variant->plan is closed. False: it does not fit, or there is no plan. */
bool wd__train_variant_fits(wd_train_variant *variant, const wd_train_plan *like);

/* "teacher: balanced over sim:0 ... sim:3, window 64, 4 at a time: 0.31 s per step, limited by the
 * student" */
void wd_train_plan_line(char *out, size_t out_bytes, const wd_train_plan *plan,
                        const wd_strategy_plan *candidate);

/* Says how much is written before the first step if LoRAs are still to be merged; false: none are.
 */
bool wd_train_plan_merge_line(char *out, size_t out_bytes, const wd_train_plan *plan,
                              const wd_train_setup *setup);

/* Writes a warning if mapped weights exceed the page cache; false: they do not. */
bool wd_train_plan_cache_line(char *out, size_t out_bytes, const wd_strategy_plan *candidate);

/* Makes an object with strategy, whether it fits, bytes, time and placement; the caller owns it. */
json_t *wd_strategy_plan_json(const wd_train_plan *plan, const wd_strategy_plan *candidate);

/* Writes what limits the speed of a plan, such as "compute of sim:0", into `out`. Returns `out`. */
const char *wd__train_plan_limit(char *out, size_t out_bytes, const wd_train_plan *plan,
                                 const wd_strategy_plan *candidate);

/* Writes the name of a device of a placement into `out`: "sim:0", or, if ranks share a teacher,
 * "sim:0 of rank 3". Returns `out`. */
const char *wd__train_plan_device(char out[32], const wd_train_plan *plan,
                                  const wd_strategy_plan *candidate, int device);

/* The number of the device that decodes sheets under a plan: the one that the map names; without a
 * map the student's, or the processor, where a plan says so. */
int wd_train_plan_decoder(const wd_train_plan *plan, const wd_strategy_plan *candidate);

/* The predicted samples per second of all ranks. */
double wd__train_plan_samples_per_s(const wd_train_plan *plan, const wd_strategy_plan *candidate);

/* The name of the device (or host memory) that is too small to encode the prompts beside the
 * program's memory; NULL: it suffices. It is the same for all strategies. */
const char *wd__train_plan_lacks_to_encode(const wd_train_plan *plan);

/* The largest peak of a device over all ranks, in bytes. */
size_t wd__train_plan_peak(const wd_train_plan *plan, const wd_strategy_plan *candidate,
                           int device);

#endif
