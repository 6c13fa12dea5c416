/* The state of `eval`: the models that it compares, and its sums. See api/jobs/eval.c. */
#ifndef WD_API_JOBS_EVAL_JOB_H
#define WD_API_JOBS_EVAL_JOB_H

#include "api/jobs/eval_report.h"
#include "api/plan/drawing_plan.h"
#include "api/setup/run.h"
#include "io/text/prompts.h"
#include "wandistiller.h"

/* The models, and the pictures that are compared: TEACHER is the teacher's in as many steps as the
 * student's, REFERENCE the teacher's in its own number of steps. */
enum { TEACHER, STUDENT, REFERENCE, SIDES = 2, PICTURES = 3 };

/* The figures of a picture. */
enum {
    VELOCITY,
    LATENTS,
    PSNR,
    REFERENCE_PSNR,
    CORRELATION,
    REFERENCE_CORRELATION,
    WD_EVAL_FIGURES
};

typedef struct wd_eval_job {
    const wd_eval_options *options;
    wd_run run;
    wd_prompts prompts;
    json_t *trained;             /* run.json of the student; NULL: there is none */
    const char *negative_prompt; /* the teacher's */
    int64_t text_tokens;
    int64_t count, height, width, each; /* pictures; latents' size and elements */
    wd_dtype dtype[SIDES];              /* in which each model computes */
    wd_pipeline pipeline[SIDES];
    wd_merged merged; /* of the teacher's LoRAs, and of what is quantised */
    wd_prompt_embeds embeds;
    wd_drawing_model_options model_options[SIDES];
    wd_drawing_plan plan;
    wd_drawing_model *model[SIDES];
    int64_t batch;
    float *latents[PICTURES];     /* [count, each] final, of one seed; REFERENCE: only if the two
                                     numbers of steps differ */
    float *image[PICTURES];       /* [count, 3, H s, W s] in [0, 1] */
    float *velocity;              /* [batch, each] the student's */
    double *mean;                 /* [batch] a picture's mean velocity error over steps */
    float **states, **velocities; /* the teacher's: [steps + 1], [steps], each [batch, each] */
    wd_schedule schedule;         /* the teacher's */
    wd_difference *by_level;      /* [steps] of velocities */
    wd_difference of_latents;
    wd_tally by_picture[WD_EVAL_FIGURES];
    double squares[2]; /* squared differences of the pictures to the teacher's, to the reference */
    wd_diversity diversity[PICTURES];
    wd_details details[PICTURES];
    wd_eval_report report;
} wd_eval_job;

/* Opens both pipelines and the prompts, and chooses sizes and the teacher's guidance, negative
 * prompt and text length: those of the student's training, unless the options give others.
 * WD_MISMATCH: the student has another teacher. */
wd_status wd__eval_choose(wd_eval_job *job, wd_err *err);

#endif
