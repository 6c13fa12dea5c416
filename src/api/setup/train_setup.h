/* Folder api/setup. What options mean on this machine: devices, ranks, prompts, dtypes, what a
 * trainer is made of.
 *
 * Turns the options of `train` into the trainer's settings: resolves defaults, reads files, and
 * checks everything against the teacher. It computes nothing. */
#ifndef WD_API_SETUP_TRAIN_SETUP_H
#define WD_API_SETUP_TRAIN_SETUP_H

#include "io/tensors/safetensors.h"
#include "io/text/prompts.h"
#include "model/text_cache/prompt_embeds.h"
#include "train/loop/trainer.h"
#include "train/loop/validation.h"
#include "train/output/comfyui.h"
#include "train/output/output.h"
#include "wandistiller.h"

typedef struct wd_train_setup {
    wd_comm *comm;            /* borrowed; without a vtable the ranks exist only in the plan */
    size_t bytes_before;      /* memory of the process when the job began */
    wd_train_options given;   /* the options of the caller */
    wd_train_options options; /* with the values that were chosen for open ones */
    wd_pipeline teacher;
    wd_pipeline first; /* what the student starts from, where options.init_student says so */
    int64_t *blocks;   /* of `first`, as they were chosen; owned; NULL: spread evenly */
    wd_student_config student;
    wd_prompts data, sample_file, validation_file;
    const char **prompt; /* [data.count + samples + validation.prompts]: the data's, then the
                          * sheets', then those of validation; owned */
    int64_t samples;
    wd_validation_options validation; /* of the option validation_prompts */
    const char **held_out;  /* [validation.prompts] the texts, which training does not see; NULL:
                             * nobody knows them; owned */
    wd_phases phases;       /* of the options' recipe */
    wd_student_forms forms; /* of --export */
    float sigma[WD_TRAJECTORY_SIGMAS_MAX]; /* of the option trajectory_sigmas; 0: not given */
    wd_dtype encoder_dtype;
    char folder[WD_PATH_MAX]; /* from which relative paths of `given` count; of rank 0 */
    char cache_dir[WD_PATH_MAX], sample_dir[WD_PATH_MAX], checkpoints[WD_PATH_MAX];
    wd_output output;         /* of rank 0 */
    char resume[WD_PATH_MAX]; /* the checkpoint's folder; "": a new run */
    const char *begun_teacher_dtype, *begun_mixed_precision; /* of its run; NULL: a new run */
    int64_t first_step;         /* files after this step are moved to earlier-N; 0: all files */
    bool output_begun;          /* rank 0 has moved them and written run.json */
    wd_target_store *store;     /* of the option targets; NULL: targets are made */
    bool no_teacher;            /* none is in memory, because there is a store, or in a plan */
    wd_store_options saving;    /* of the option save_targets */
    json_t *saved_run;          /* what saving.run says; NULL: not made yet */
    char text_dir[WD_PATH_MAX]; /* where prompt embeddings are kept */
    wd_prompt_embeds embeds;    /* opened by the caller; closed here */
    char prompts_key[WD_PROMPTS_KEY_MAX];          /* of data; the caller computes it */
    char validation_key[WD_PROMPTS_KEY_MAX];       /* of held_out; wd_encoding_plan computes it */
    char teacher_key[WD_SAFETENSORS_KEY_MAX];      /* of its experts' weights; "": not known yet */
    char text_encoder_key[WD_SAFETENSORS_KEY_MAX]; /* the caller computes it */
    char text_kernels[WD_KERNELS_TEXT]; /* of the device that encodes the prompts; "": a processor;
                                         * wd_encoding_plan finds it */
    wd_trainer_options trainer; /* without the number of text rows, which wd_encoding_plan sets */
} wd_train_setup;

/* Computes teacher_key, one for all experts, if it is not known: it reads some pages of the
 * weights. Checkpoints contain it, so that a resumed run must have the same. */
wd_status wd_train_setup_key_teacher(wd_train_setup *setup, wd_err *err);
/* Computes the same key of the weights that are there, whatever teacher_key says. */
wd_status wd__train_key_of_teacher(char out[WD_SAFETENSORS_KEY_MAX], const wd_train_setup *setup,
                                   wd_err *err);

/* Where --optimizer_device and --ema_device put the optimizer's state; what they leave to auto is
 * on the device. */
wd_state_place wd_train_state_place(const wd_train_options *options);

/* Whether the run reads weights of the teacher's transformer: not where it has stored targets, and
 * an earlier student or a checkpoint to start from. */
static inline bool wd_train_reads_teacher(const wd_train_setup *setup)
{
    return !setup->options.targets || !(setup->options.init_student || setup->options.resume);
}

/* Sets up a run. *out must not be moved, since the trainer's options point into it. */
wd_status wd_train_setup_open(wd_train_setup *out, const wd_train_options *options, wd_comm *comm,
                              wd_err *err);
/* Sets up a run for planning alone: only the teacher must exist, or `preset` (may be NULL) names
 * it. Without prompts the text has as many rows as a prompt can have. */
wd_status wd_train_setup_open_planned(wd_train_setup *out, const wd_train_options *options,
                                      wd_comm *ranks, const char *preset, wd_err *err);
/* Samples of one step of all ranks. */
int64_t wd__train_step_samples(const wd_train_setup *setup);
/* The steps of an epoch, in which all ranks together see as many samples as there are prompts; 0:
 * there are no prompts. */
int64_t wd_train_epoch_steps(const wd_train_setup *setup);

void wd_train_setup_close(wd_train_setup *setup); /* a zeroed one is fine */

/* ---- the student's sizes and start: student_start.c ---- */

/* Reads options.student_config into setup->student, and opens the model that options.init_student
 * names as setup->first: a folder, a Hub id, or a file with a transformer. If `plans`, the name of
 * a preset is one, too. Only its transformer is needed. WD_MISMATCH: the student would not fit the
 * teacher's latents or text; the error names all that differs. The teacher is open. */
wd_status wd__student_open(wd_train_setup *setup, bool plans, wd_err *err);

/* ---- targets: stored_targets.c ----
 *
 * What --save_targets and --targets mean for a run: folders of targets, and the options that must
 * be those of the run which made them (train/targets/target_store.h). */

/* Opens the store of --targets. Options that decide its targets and are not given take its values;
 * WD_INVALID_ARGUMENT names one that contradicts it. The teacher is open, the student not yet. Sets
 * setup->teacher_key, so that no weights of a teacher are read. */
wd_status wd__stored_targets_open(wd_train_setup *setup, wd_err *err);

/* The file of prompts of the store, if no --data_path is given; "": none. */
wd_status wd__stored_targets_prompts(char out[WD_PATH_MAX], const wd_train_setup *setup,
                                     wd_err *err);

/* Sets setup->text_dir: the cache folder; of a run with targets, which is given none, a folder
 * beside these. */
wd_status wd__stored_targets_text_dir(wd_train_setup *setup, wd_err *err);

/* Checks, of rank 0, that the folder of --save_targets is new, or of the run that is resumed. */
wd_status wd__stored_targets_check_folder(const wd_train_setup *setup, wd_err *err);

/* Checks the trainer's settings, which are filled in: what the student can learn from the store,
 * and whether its run can store targets. Says how often targets are seen. */
wd_status wd__stored_targets_check(wd_train_setup *setup, wd_err *err);

/* Compares the prompts of the run, whose keys are known, with those of the store. */
wd_status wd_stored_targets_compare(const wd_train_setup *setup, wd_err *err);

/* Sets what a store of this run's targets will say of it, when all keys are known. */
wd_status wd_stored_targets_describe(wd_train_setup *setup, wd_err *err);

/* ---- validation: validation_prompts.c ----
 *
 * What --validation_prompts means for a run: which prompts it is validated on, and that it does not
 * train on them. */

/* Chooses the prompts, once setup->data is read (`given`; else only their number is planned): a
 * number of the data's, by the seed alone, or those of a file. Prompts of the data that are the
 * same text, after cleaning, are left out of setup->data. Sets setup->held_out and
 * setup->validation.prompts. */
wd_status wd__validation_prompts_choose(wd_train_setup *setup, bool given, wd_err *err);

/* Checks the options beside it, which mean nothing without it, and what --keep_best would replace.
 */
wd_status wd__validation_check(const wd_train_setup *setup, wd_err *err);

/* Writes the texts to validation-prompts.jsonl in the output folder, where there are any, so that
 * `eval --prompts` can be given the same. */
wd_status wd_validation_prompts_write(const wd_train_setup *setup, const char *folder, wd_err *err);

#endif
