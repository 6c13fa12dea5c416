/* The plan of a command that draws pictures with models: `sample` and `eval`. It says where weights
 * are kept, how many pictures are drawn at a time, and which device encodes and decodes.
 *
 * Data flow: the models' options, and the memory of the device and the host -> for each strategy
 * and number of pictures a dry run of the same code that draws (api/setup/drawing_model.h) -> the
 * first that fits. Only the headers of weights are read. */
#ifndef WD_API_PLAN_DRAWING_PLAN_H
#define WD_API_PLAN_DRAWING_PLAN_H

#include "api/setup/drawing_model.h"
#include "api/setup/run.h"
#include "wandistiller.h"

enum { WD_DRAWING_MODELS_MAX = 2 };

/* What a command draws; all is borrowed. */
typedef struct wd_drawing {
    wd_job job;          /* its name and options are in the commands that a refusal suggests */
    const void *options; /* of the job */
    const wd_run *run;
    wd_text_cache *text;
    /* Models that are open together. The first has the strategy, and all of them the plan's number
     * of pictures at a time; another one stays on the device as a whole, unless they are `alike`.
     * Their strategies and batch_max are not read. */
    const wd_drawing_model_options *model[WD_DRAWING_MODELS_MAX];
    int models;
    bool alike;              /* as large as each other: all have the strategy */
    const wd_pipeline *vae;  /* the pipeline whose VAE decodes */
    int64_t batch;           /* pictures at a time that the user asked for; 0: the plan chooses */
    bool decodes_beside;     /* the models stay open while pictures are decoded */
    size_t host_bytes;       /* arrays of the job, beside one batch of latents and pictures */
    size_t host_bytes_each;  /* the same for each picture of a batch */
    const char *strategy;    /* a name of wd_strategy; NULL: auto */
    const char *host_memory; /* as the option; NULL: the free memory */
} wd_drawing;

typedef struct wd_drawing_plan {
    wd_strategy strategy; /* cpu, gpu, offload or disk */
    int64_t batch;        /* pictures at a time */
    bool alike;           /* as the drawing's */
    bool in_turn;         /* all pictures are drawn, and the models closed, before any is decoded */
    wd_device *encoder;   /* of the run */
    wd_queue *sampler, *decoder;             /* of the run */
    size_t device_bytes, host_bytes;         /* the peaks, the program's own memory included */
    size_t device_bytes_max, host_bytes_max; /* what is there */
    size_t mapped_bytes; /* weights that are used where their files are mapped: no memory of ours */
} wd_drawing_plan;

/* Chooses and logs the plan. auto: the weights stay on the device if they fit, else offload, else
 * disk; on a processor they are mapped files where these stay in the page cache, else disk.
 * WD_DOES_NOT_FIT: logs what is missing, and the commands that fit. */
wd_status wd_drawing_plan_open(wd_drawing_plan *out, const wd_drawing *drawing, wd_err *err);

/* Encodes the job's prompts on the plan's device. */
wd_status wd_drawing_encode(const wd_drawing_plan *plan, wd_text_cache *text, wd_err *err);

/* options->strategy, batch_max and processor as planned. `model`: its number in the drawing. */
void wd_drawing_follow(wd_drawing_model_options *options, const wd_drawing_plan *plan,
                       const wd_run *run, int model);

#endif
