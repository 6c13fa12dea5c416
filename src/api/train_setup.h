/* From the options of `train` to what the trainer works with: defaults resolved, files read, all
 * checked against the teacher. Nothing is computed. */
#ifndef WD_API_TRAIN_SETUP_H
#define WD_API_TRAIN_SETUP_H

#include "api/prompt_embeds.h"
#include "distill/trainer.h"
#include "io/prompts.h"
#include "io/safetensors_key.h"
#include "student/output.h"

typedef struct wd_train_setup {
    wd_comm *comm;            /* borrowed; without a vtable: the ranks are planned for only */
    size_t bytes_before;      /* of memory that the process had when the job began */
    wd_train_options given;   /* as they came */
    wd_train_options options; /* resolved: what was left open has its value */
    wd_pipeline teacher;
    wd_pipeline first; /* what the student starts from, where options.init_student says so */
    wd_student_config student;
    wd_prompts data, sample_file;
    const char **prompt; /* [data.count + samples]: the data's, then the sheets'; owned */
    int64_t samples;
    wd_dtype encoder_dtype;
    char cache_dir[WD_PATH_MAX], sample_dir[WD_PATH_MAX], checkpoints[WD_PATH_MAX];
    wd_output output;                     /* the first rank's */
    char resume[WD_PATH_MAX];             /* a checkpoint's folder; "": a new run */
    int64_t first_step; /* of what is moved aside in the output folder; 0: all of a run */
    bool output_begun;  /* the first rank has moved it, and has written run.json */
    wd_prompt_embeds embeds;              /* opened by the caller; closed here */
    char prompts_key[WD_PROMPTS_KEY_MAX]; /* of data; made by the caller */
    char teacher_key[WD_SAFETENSORS_KEY_MAX]; /* of its experts' weights; "": not made yet */
    char text_encoder_key[WD_SAFETENSORS_KEY_MAX]; /* made by the caller */
    wd_trainer_options trainer; /* but for the rows of text, which the prompts' tokens decide */
} wd_train_setup;

/* Makes teacher_key, one for all experts, unless it is there: reads some pages of the weights. What
 * a checkpoint says, and what a resumed run is compared with. */
wd_status wd_train_setup_key_teacher(wd_train_setup *setup, wd_err *err);

/* In place: *out must not be moved, for the trainer's options point into it. */
wd_status wd_train_setup_open(wd_train_setup *out, const wd_train_options *options, wd_comm *comm,
                              wd_err *err);
/* The same for planning alone: nothing need be there but the teacher, which may be a preset (or
 * NULL); where there are no prompts, rows of text are as many as a prompt can have. */
wd_status wd_train_setup_open_planned(wd_train_setup *out, const wd_train_options *options,
                                      wd_comm *ranks, const char *preset, wd_err *err);
/* Steps of one epoch: all ranks see as many samples as there are prompts; 0: there are none. */
int64_t wd_train_epoch_steps(const wd_train_setup *setup);

void wd_train_setup_close(wd_train_setup *setup); /* a zeroed one is fine */

#endif
