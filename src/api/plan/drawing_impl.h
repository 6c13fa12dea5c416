/* The search for a plan of drawing. Private to src/api/plan/drawing_*.c.
 *
 * drawing_plan.c       what a plan needs, budgets, encoder and decoder, strategies in their order
 * drawing_refusal.c    what is missing, and what would fit */
#ifndef WD_API_PLAN_DRAWING_IMPL_H
#define WD_API_PLAN_DRAWING_IMPL_H

#include "api/plan/drawing_plan.h"
#include "dev/device_open.h"

enum { WD_DRAWING_STRATEGIES = 4 };

typedef struct wd_drawing_need {
    size_t device; /* the peak of a device other than the processor, with its queues' workspace */
    size_t host;   /* the peak of host memory, a processor's pool included */
    size_t mapped; /* weights that are used where their files are mapped */
} wd_drawing_need;

/* What plans of all strategies share, and the plan that is tried. */
typedef struct wd_drawing_search {
    const wd_drawing *drawing;
    wd_dtype
        encoding_dtype; /* of the text encoder: F32 or BF16; WD_DTYPE_COUNT: the text cache's */
    int64_t batch;      /* pictures at a time, at most */
    size_t device_max, host_max;
    size_t program; /* host memory that is measured instead of planned */
    wd_device *encoder;
    wd_queue *decoder;
    wd_drawing_need encoding, decoding;
    int64_t decoded; /* how many pictures `decoding` is for */
    wd_drawing_plan plan;
    wd_drawing_plan
        refused[WD_DRAWING_STRATEGIES]; /* what strategies that do not fit need at least */
    int refusals;
} wd_drawing_search;

/* ---- drawing_plan.c ---- */

/* Chooses encoder and decoder. `encoding`: as encoding_dtype. */
wd_status wd__drawing_search_open(wd_drawing_search *search, const wd_drawing *drawing,
                                  wd_dtype encoding, wd_err *err);

/* search->plan = the plan of the strategy with the most pictures at a time that fits; *fits false:
 * none does, and the plan is the one that needs least. */
wd_status wd__drawing_try(bool *fits, wd_drawing_search *search, wd_strategy strategy, wd_err *err);

/* Writes the short name of the run's device, "sim:0", into `out`. Returns `out`. */
const char *wd__drawing_device_name(char out[WD_DEVICE_SHORT_NAME], const wd_run *run);

/* Lists the strategies of auto in their order, and returns their number. */
int wd__drawing_strategies(wd_strategy out[WD_DRAWING_STRATEGIES], const wd_run *run);

/* ---- drawing_refusal.c ---- */

/* Logs what the refused plans lack, and the commands that would fit. Returns WD_DOES_NOT_FIT. */
wd_status wd__drawing_refuse(const wd_drawing_search *search, wd_err *err);

#endif
