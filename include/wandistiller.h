/* WanDistiller: distils Wan video diffusion transformers into small text-to-image students.
 *
 * This is the public interface: one options struct per job with its defaults, and one function per
 * job. wandistiller_status.h, which it includes, declares status and error, and what a job reports
 * while it runs. Neither contains a constant of a model.
 *
 * Ownership: options are plain values; the strings in them are borrowed and must live until the
 * call returns. Threads: one job at a time per process, unless a function says otherwise. Errors:
 * wherever a function takes a wd_err, NULL is allowed and means that the status is enough.
 *
 * Later versions: option structs and results keep their size. New fields take the place of
 * `reserved`, and wd_<job>_defaults() fills them, so a program that is linked with a newer library
 * need not be compiled again. A job refuses a struct that was not filled by wd_<job>_defaults().
 *
 * Settings of the process: the library changes none. The command line program makes two that your
 * program may want to make as well. It starts with GOMP_SPINCOUNT=2000 in the environment, because
 * waiting OpenMP threads otherwise spin for milliseconds and slow down other programs. It calls
 * mallopt(M_MMAP_THRESHOLD, 256 << 10), because glibc's heap otherwise keeps more memory than
 * plans predict.
 */
#ifndef WANDISTILLER_H
#define WANDISTILLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wandistiller_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WD_VERSION_MAJOR 0
#define WD_VERSION_MINOR 1
#define WD_VERSION_PATCH 0
#define WD_VERSION "0.1.0"
/* For comparisons: WD_VERSION_NUMBER >= 200 means 0.2.0 or later. */
#define WD_VERSION_NUMBER (WD_VERSION_MAJOR * 10000 + WD_VERSION_MINOR * 100 + WD_VERSION_PATCH)

/* The version of the linked library; WD_VERSION and WD_VERSION_NUMBER are those of this header. A
 * header that is newer than the library has options that the library does not know. */
WD_API const char *wd_version(void);
WD_API int wd_version_number(void);

/* What this library was built with, a line for each: "GPU kernels: built\nMPI: built\n...". */
WD_API const char *wd_features(void);

/* Frees a text that a job returned; NULL is allowed. */
WD_API void wd_text_free(char *text);

/* ---- options: one struct per job ----
 *
 * Start from wd_<job>_defaults(), which sets `bytes`; set fields; run the job. Strings are
 * borrowed; NULL means not given. An optional number has a value that means "not given": 0, or NaN
 * where the comment says "NaN:". The table of the job (wd_options_of) says what each option does
 * and which range it may have. Command line, --config files, manual and completions are made from
 * this table.
 */

enum { WD_TEXTS_MAX = 64 };

/* A list of texts, borrowed. */
typedef struct wd_texts {
    const char *item[WD_TEXTS_MAX]; /* [count], none of them NULL */
    int64_t count;
} wd_texts;

/* Distils a student from a teacher. */
typedef struct wd_train_options {
    size_t bytes; /* of this struct */
    /* teacher */
    const char *teacher_path;  /* pipeline folder or Hub id; required, but for single files */
    const char *teacher_dtype; /* "float32", "bfloat16", "float16" (the same as bfloat16),
                                * "float8_e4m3fn", "int8": its weights; NULL: "bfloat16" on GPUs,
                                * "float32" where the processor is the only device */
    const char
        *teacher_device_strategy;   /* "cpu", "gpu", "gpu0", "balanced", "sequential", "custom",
                                     * "offload", "disk", "auto"; NULL: by the devices */
    const char *teacher_device_map; /* JSON file with the placement of "custom" */
    int64_t teacher_rank;           /* device, or rank of several, of "gpu0"; -1: the first */
    int64_t teacher_prefetch;       /* blocks that are fetched ahead of use */
    int64_t teacher_window; /* trajectories per sweep over the weights, of all ranks; 0: chosen */
    int64_t teacher_micro_batch; /* states that go through a block together; 0: chosen */
    /* student */
    const char *student_config;  /* JSON file; NULL: half the teacher's depth */
    const char *mixed_precision; /* what the student computes in: "no" (fp32), "bf16", or "fp16",
                                  * which computes in bf16 on every device; NULL: "bf16" on GPUs,
                                  * "no" where the processor is the only device */
    /* data */
    const char *data_path; /* prompts: a file, or a folder with some; required, but with targets */
    const char *negative_prompt;
    int64_t height, width;       /* pixels; 0: student_config's image_size, else the teacher's */
    int64_t max_sequence_length; /* text tokens; 0: student_config's, else the tokenizer's */
    const char *cache_dir;       /* prompt embeddings; NULL: <output_dir>/cache */
    /* objective */
    int64_t trajectories;     /* under way at any time */
    int64_t trajectory_steps; /* steps of each from noise to picture, on average */
    int64_t target_reuse;     /* how often the student sees each target, on average; 0: velocities
                               * twice, chords as many times more often as they take velocities;
                               * -1 (auto): chosen by the predicted time of a step */
    int64_t target_replay;    /* latest targets from which repeated ones are drawn */
    double guidance_scale;    /* folded into the targets; NaN: that of the teacher's authors */
    double guidance_scale_2;  /* of the low-noise expert; NaN: guidance_scale where that is given */
    double flow_shift;        /* NaN: the teacher's scheduler's */
    /* training */
    int64_t batch_size;                  /* samples per micro-batch; 0: chosen */
    int64_t gradient_accumulation_steps; /* micro-batches of a step and rank */
    int64_t num_epochs, num_steps; /* 0: no such limit; the first limit reached ends the run */
    double max_minutes;            /* 0: no such limit */
    double lr;                     /* NaN: chosen by the student's width */
    const char *lr_schedule;       /* "cosine", "constant" */
    int64_t warmup_steps;
    double min_lr_ratio;
    double weight_decay, adam_beta1, adam_beta2, adam_eps;
    double max_grad_norm; /* 0: no clipping */
    double ema_decay;
    bool gradient_checkpointing;
    bool deterministic_reduce; /* gradients are summed in one order for any number of ranks */
    bool shard_optimizer;      /* each rank keeps moments, EMA, master weights of its share only */
    uint64_t seed;
    /* output */
    const char *output_dir;
    const char *resume;          /* NULL: a new run; "auto"; or a checkpoint's folder */
    int64_t checkpoint_interval; /* steps; 0: every 15 minutes; the last one is at the end */
    int64_t keep_checkpoints;
    const char *save_samples; /* "true", "false": sample sheets; "auto": where they take less than a
                               * tenth of the time */
    wd_texts sample_prompts;  /* prompts, or one file of prompts */
    int64_t sample_interval;  /* steps; 0: ten times in the run */
    int64_t sample_steps;
    const char *sample_dir; /* NULL: <output_dir>/samples */
    /* machine */
    const char *devices;     /* "auto", "cpu", "sim:4x24GiB@link=25GB/s" */
    const char *host_memory; /* "60GiB": for all ranks of a host together; NULL: what is free */
    const char *network_bandwidth; /* "12.5GB/s": from a host to the others, for plans */
    bool measure_rates;            /* even if an earlier run has measured this machine's rates */
    bool profile_memory;           /* log planned beside measured bytes at the end */
    int64_t num_threads;           /* 0: all cores; a build without OpenMP uses one */
    const char *offload_folder;    /* accepted for scripts of the Python version; has no effect */
    int64_t num_workers;           /* accepted for scripts of the Python version; has no effect */
    int64_t stop_at_step;          /* stop after this step, as wd_request_stop does; 0: never */
    /* ranks: see docs/ranks.md */
    bool distributed;       /* this process is one of several that train one student */
    bool multi_gpu;         /* start a rank for each of `devices`: see wd_train_start_ranks */
    int64_t nproc_per_node; /* start this many ranks: see wd_train_start_ranks; 0: none */
    int64_t local_rank;     /* accepted for scripts of the Python version; has no effect */
    double step_timeout;    /* seconds that a step of several ranks may take; 0: from the plan */
    const char *nccl;       /* "auto": ranks on different GPUs exchange gradients by NCCL if all of
                             * them can, else through host memory; "on": they must; "off" */
    /* Parts of the teacher in other files: each is NULL, a safetensors file in diffusers' or the
     * original naming, or a folder; teacher_path may be NULL then. teacher_preset gives values that
     * are in no file: "wan2.1-1.3b", "wan2.1-14b", "wan2.2-a14b", "wan2.2-5b"; NULL: by the sizes.
     */
    const char *transformer, *transformer_2, *text_encoder, *vae, *tokenizer;
    const char *teacher_preset;
    const char *init_student; /* what the student starts from: a folder, a Hub id, a file with a
                               * transformer, or, to plan, a preset; NULL: the teacher's blocks */
    int64_t student_steps;    /* sampling steps that the student is made for; 0: as the teacher */
    /* LoRAs that are merged into the teacher, and into its low-noise expert: "FILE",
     * "FILE:STRENGTH", or several with commas between them; NULL: none. docs/models.md */
    const char *teacher_lora, *teacher_lora_2;
    const char *export_to; /* the option "export": "comfyui", "gguf" or "comfyui,gguf" also writes
                            * the student in these forms for ComfyUI, each with a workflow; NULL:
                            * only the pipeline folder is written */
    const char *recipe;    /* "velocity", "chord", "velocity,chord", "velocity:3,chord:2": what the
                            * student learns, with shares of the run; NULL: by student_steps */
    const char *trajectory_sigmas; /* "1,0.9375,0.8333,0.625": noise levels at which the teacher is
                                    * asked, in place of trajectory_steps; NULL: by flow_shift */
    double on_policy_share;        /* of the trajectories, 0 to 1, that go on from the student's own
                                    * steps; needs two chords and more;
                                    * NaN: then 1, else 0 */
    double on_policy_end;    /* share of the chord phase, 0 to 1, after which all trajectories are
                              * the teacher's alone; 1: never */
    int64_t on_policy_every; /* optimiser steps between two snapshots of the student's weights, with
                              * which the student's own steps are computed */
    double diversity_gain;   /* by how much the chords of two trajectories of one prompt lead away
                              * from each other, 0 to 1; above 0 it needs student_steps, and
                              * twice the steps of a trajectory must divide trajectories */
    const char *optimizer;   /* "adamw", "adamw8bit", "ademamix" */
    double ademamix_alpha;   /* weight of AdEMAMix's slow average at the end of the run */
    double ademamix_beta3;   /* decay of that average at the end of the run, 0 to below 1 */
    int64_t chords;          /* of a trajectory: the student makes student_steps / chords steps
                              * along each, and both student_steps and the steps of a trajectory
                              * are multiples of it; 0: student_steps */
    /* Tensors that no Wan model has are left out, with a warning; without it they are an error. */
    bool ignore_unknown_tensors;
    /* The memory of moments, EMA and master weights: "device" (the student's), "host", or "auto",
     * which is the host's only if the run fits, or is faster, only so. */
    const char *optimizer_device;
    /* That of the EMA alone: "device", "host", or "auto": with the optimiser's other state, or, if
     * optimizer_device is "auto", in the host's where that is enough. */
    const char *ema_device;
    /* The column of the file of data_path, or the key of its JSON objects, that has the prompt;
     * NULL: prompt, caption or text. */
    const char *prompt_column;
    /* Folders of targets (docs/which-recipe.md): to which the run writes its targets as they are
     * made, NULL: none; and from which it trains without a teacher in memory, NULL: it makes them.
     * With `targets` data_path may be NULL, and teacher_path's transformer need have no weights
     * where there is init_student. */
    const char *save_targets, *targets;
    /* On which prompts the student's error is measured on the way: "16", so many of data_path's, or
     * a file of prompts; neither are trained on. NULL or "0": none. */
    const char *validation_prompts;
    int64_t validation_interval; /* optimiser steps between two; 0: chosen */
    bool keep_best; /* the student with the least error is kept, too; needs validation_prompts */
    const char *save_report; /* "true", "false": report.html and plan.svg in output_dir */
    /* The dtype of the student's gradients: "float32" or "bfloat16". "bfloat16" needs
     * mixed_precision "bf16", and gradient_accumulation_steps 1 or deterministic_reduce. */
    const char *gradient_dtype;
    uint64_t reserved[14];
} wd_train_options;

/* Predicts memory and time of a run of `train`, under every strategy, without loading a weight. */
typedef struct wd_plan_options {
    wd_train_options train;     /* teacher_path and data_path may be NULL */
    size_t bytes;               /* of this struct */
    const char *teacher_preset; /* a published model instead of teacher_path: "wan2.1-1.3b",
                                 * "wan2.1-14b", "wan2.2-a14b", "wan2.2-5b" */
    int64_t ranks, hosts;       /* of the planned run; ranks 0: as `train` says, or one per host */
    bool json;
    bool verbose;         /* text only: all strategies, columns and items */
    const char *svg;      /* file to which a drawing of the plan is written; NULL: none */
    bool largest_student; /* instead of the plan: the largest students that fit */
    uint64_t reserved[7];
} wd_plan_options;

/* Makes pictures with a teacher or a student. */
typedef struct wd_sample_options {
    size_t bytes;                /* of this struct */
    const char *model;           /* pipeline folder or Hub id; required */
    wd_texts prompt;             /* prompts, or ... */
    const char *prompts;         /* ... a file, one per line; one of the two is required */
    const char *negative_prompt; /* NULL: the authors' for Wan's own models, else none */
    int64_t steps;
    double guidance_scale;   /* NaN: 1 for a student of this program, else the authors' */
    double guidance_scale_2; /* of the low-noise expert; NaN: guidance_scale, or the authors' */
    uint64_t seed;
    int64_t height, width;       /* pixels; 0: the model's default */
    int64_t max_sequence_length; /* text tokens; 0: min(512, the tokenizer's maximum) */
    const char *scheduler;       /* "unipc", "euler"; NULL: the model's */
    double flow_shift;           /* NaN: the model's */
    const char *dtype;   /* "float32", "bfloat16": of transformer and text encoder; NULL: bfloat16,
                          * but on a processor float32 where the transformer's file is of float32 */
    int64_t batch_size;  /* pictures at a time */
    const char *latents; /* safetensors file to start from: `latents` [B, C, 1, H, W] */
    const char *trace;   /* safetensors file to which tokens, embeds and latents are written */
    const char *out;     /* folder, or a .png file for one picture; required */
    int64_t num_threads;
    const char *device; /* that computes: "auto" (a GPU where there is one), "cpu", "cuda:1" */
    /* Parts in other files: see wd_train_options; model may be NULL then. */
    const char *transformer, *transformer_2, *text_encoder, *vae, *tokenizer;
    const char *teacher_preset;
    const char *teacher_lora, *teacher_lora_2; /* see wd_train_options */
    bool ignore_unknown_tensors;               /* see wd_train_options */
    /* "auto", "gpu", "offload", "disk", "cpu": where the model's weights are kept; NULL: auto.
     * Never changes a picture. */
    const char *teacher_device_strategy;
    const char *host_memory;   /* "60GiB": the memory that may be used; NULL: what is free */
    int64_t images_per_prompt; /* of seed, seed + 1, ...: pictures of a prompt follow one another */
    uint64_t reserved[2];
} wd_sample_options;

/* Runs one component of a model on given tensors, for comparison with a reference. */
typedef struct wd_forward_options {
    size_t bytes;          /* of this struct */
    const char *model;     /* pipeline folder, or one with the component's subfolder; required */
    const char *component; /* "transformer", "transformer_2", "text_encoder", "vae_decoder",
                            * "vae_encoder"; required */
    const char *in;        /* safetensors: hidden_states, timestep, encoder_hidden_states,
                            * grad_sample; input_ids, attention_mask; latents; image; required */
    const char *out;       /* safetensors: sample, last_hidden_state, encoded_mean, grad.*, all
                            * fp32; required */
    bool grad;             /* also write the gradients of sum(sample * grad_sample) */
    const char *dtype;     /* "float32", "bfloat16"; NULL: as wd_sample_options, by the component */
    int64_t num_threads;
    const char *device; /* that computes: "auto" (a GPU where there is one), "cpu", "cuda:1" */
    /* Parts in other files: see wd_train_options; model may be NULL then. */
    const char *transformer, *transformer_2, *text_encoder, *vae, *tokenizer;
    const char *teacher_preset;
    const char *teacher_lora, *teacher_lora_2; /* see wd_train_options */
    bool ignore_unknown_tensors;               /* see wd_train_options */
    uint64_t reserved[5];
} wd_forward_options;

/* Describes a model folder or a file. */
typedef struct wd_inspect_options {
    size_t bytes;     /* of this struct */
    const char *path; /* pipeline folder, Hub id, component folder, safetensors file; required */
    bool json;
    bool ignore_unknown_tensors; /* see wd_train_options */
    /* Parts in other files: see wd_train_options; path may be NULL then. */
    const char *transformer, *transformer_2, *text_encoder, *vae, *tokenizer;
    const char *teacher_preset;
    const char *teacher_lora, *teacher_lora_2; /* see wd_train_options */
} wd_inspect_options;

/* Compares a student with its teacher. */
typedef struct wd_eval_options {
    size_t bytes;                  /* of this struct */
    const char *teacher, *student; /* pipeline folders or Hub ids; required: see quantisation */
    const char *prompts;           /* file, one per line; required */
    const char *negative_prompt;   /* NULL: as in the student's run */
    int64_t count;                 /* how many prompts are used, from the first; 0: all */
    int64_t steps;                 /* of the student; 0: what it was made for, else 20 */
    double guidance_scale, guidance_scale_2; /* of the teacher; NaN: as the student's run had it */
    uint64_t seed;
    int64_t height, width;       /* pixels; 0: the student's default */
    int64_t max_sequence_length; /* 0: as in the student's run, else as in sample */
    const char *dtype;           /* as wd_sample_options; NULL: each model has its own */
    int64_t batch_size;
    const char *out; /* folder: eval.json, side-by-side.png; NULL: only the text */
    bool json;       /* the text is JSON instead of a table */
    int64_t num_threads;
    int64_t seeds;           /* noise of seed, seed + 1, ...: so many pictures of each prompt */
    int64_t reference_steps; /* of the teacher's pictures; 0: what its card says, else 20 */
    const char *device;      /* that computes: "auto" (a GPU where there is one), "cpu", "cuda:1" */
    /* Parts of the teacher in other files: see wd_train_options; teacher may be NULL then. Where
     * neither teacher nor tokenizer is given, the student's tokenizer is used. */
    const char *transformer, *transformer_2, *text_encoder, *vae, *tokenizer;
    const char *teacher_preset;
    const char *teacher_lora, *teacher_lora_2; /* see wd_train_options */
    /* "float8_e4m3fn", "int8": the teacher, quantised so, takes the student's place; NULL: there is
     * a student */
    const char *quantisation;
    bool ignore_unknown_tensors; /* see wd_train_options */
    /* "auto", "gpu", "offload", "disk", "cpu": where the teacher's weights are kept; NULL: auto.
     * Never changes a figure. */
    const char *teacher_device_strategy;
    const char *host_memory; /* "60GiB": the memory that may be used; NULL: what is free */
    uint64_t reserved[2];
} wd_eval_options;

/* Writes a transformer in another format. */
typedef struct wd_convert_options {
    size_t bytes;          /* of this struct */
    const char *model;     /* pipeline folder or Hub id; for to = "diffusers" a file; required */
    const char *to;        /* "comfyui", "gguf", "diffusers"; required */
    const char *component; /* "transformer", "transformer_2" */
    /* "float32", "float16", "bfloat16"; to "comfyui" also "float8_e4m3fn"; to "gguf" also "q8_0",
     * "q4_k"; NULL: as the weights are stored */
    const char *dtype;
    /* File; to "diffusers": a folder. Nothing is replaced. A student's workflow for ComfyUI is
     * written beside the file, with ".json" behind its name. Required. */
    const char *out;
    /* Parts in other files: see wd_train_options; model may be NULL then. */
    const char *transformer, *transformer_2, *text_encoder, *vae, *tokenizer;
    const char *teacher_preset;
    const char *teacher_lora, *teacher_lora_2; /* see wd_train_options */
    bool ignore_unknown_tensors;               /* see wd_train_options */
    uint64_t reserved[5];
} wd_convert_options;

/* Measures this machine and this program. */
typedef struct wd_bench_options {
    size_t bytes;     /* of this struct */
    const char *only; /* run the cases whose name contains this; NULL: all */
    int64_t num_threads;
    /* Receives each line of the report as soon as it is known, without a newline; required. */
    void (*print)(void *context, const char *line);
    void *print_context;
    const char *device; /* that computes: "auto" (a GPU where there is one), "cpu", "cuda:1" */
    uint64_t reserved[7];
} wd_bench_options;

/* Makes a page about runs of train. */
typedef struct wd_report_options {
    size_t bytes;    /* of this struct */
    wd_texts runs;   /* output folders of runs, one to eight; required */
    const char *out; /* the HTML file; NULL: report.html in the folder of the only run */
    uint64_t reserved[8];
} wd_report_options;

/* Asks something of a run of train that is under way, in this or another process. */
typedef struct wd_tell_options {
    size_t bytes;        /* of this struct */
    const char *run;     /* its output folder; required */
    const char *request; /* "sample", "save", "stop"; required */
    uint64_t reserved[5];
} wd_tell_options;

/* The options that every command takes besides those of its job. */
typedef struct wd_common_options {
    size_t bytes;          /* of this struct */
    const char *config;    /* file of options: see wd_config_open */
    const char *log_level; /* "error", "warning", "info", "debug" */
    uint64_t reserved[8];
} wd_common_options;

/* ---- jobs ----
 *
 * A job checks its options first (WD_INVALID_ARGUMENT with the option, what was expected and what
 * was found), runs on the calling thread with num_threads threads, and returns when everything is
 * written. It runs in one process, except for wd_train with `distributed`: all ranks call that with
 * the same options. When a rank fails, its error is logged once, and every rank's process ends with
 * the status of this error as exit code, so that wd_train does not return. A text (*text) is set on
 * success only; the caller frees it with wd_text_free. */

/* How a run of `train` has ended. */
typedef struct wd_train_result {
    bool stopped;    /* by wd_request_stop or stop_at_step, before it was done */
    int64_t steps;   /* of the run, including steps before it was resumed */
    int64_t targets; /* velocities that the teacher has computed for the run, or that were stored */
    double loss;     /* mean of the last hundred steps; NaN: no step since it was resumed */
    double seconds;  /* of training, including seconds before it was resumed */
    uint64_t reserved[8];
} wd_train_result;

/* *result: set on success; NULL is allowed. */
WD_API wd_status wd_train(wd_train_result *result, const wd_train_options *options, wd_err *err);
/* For a rank that cannot even read its options: reports `error` as wd_train would report it to all
 * ranks, and does not return. In a process that was started alone it does nothing and returns. */
WD_API void wd_train_fail(const wd_err *error);
/* Runs this program again under mpirun where `nproc_per_node` or `multi_gpu` ask for several ranks
 * that are not started yet; returns when they have ended. *exit_code: that of the ranks; -1: there
 * was nothing to start, and the caller continues with wd_train. argv[argc]: the program's arguments
 * without its own name. Meanwhile SIGINT and SIGTERM are passed on to the ranks. The process must
 * not have threads yet. */
WD_API wd_status wd_train_start_ranks(int *exit_code, const wd_train_options *options, int argc,
                                      char *const *argv, wd_err *err);
/* WD_DOES_NOT_FIT: no strategy fits; *text is set nevertheless and says what is missing. */
WD_API wd_status wd_plan(char **text, const wd_plan_options *options, wd_err *err);
WD_API wd_status wd_sample(const wd_sample_options *options, wd_err *err);
WD_API wd_status wd_forward(const wd_forward_options *options, wd_err *err);
WD_API wd_status wd_inspect(char **text, const wd_inspect_options *options, wd_err *err);
WD_API wd_status wd_eval(char **text, const wd_eval_options *options, wd_err *err);
WD_API wd_status wd_convert(const wd_convert_options *options, wd_err *err);
WD_API wd_status wd_report(const wd_report_options *options, wd_err *err);
/* It returns when the request is left; the run takes it between two steps. */
WD_API wd_status wd_tell(const wd_tell_options *options, wd_err *err);
WD_API wd_status wd_bench(const wd_bench_options *options, wd_err *err);

/* ---- options as data ---- */

#define WD_JOB_MAP(X)                                                                              \
    X(TRAIN, train, "distil a student from a teacher")                                             \
    X(PLAN, plan, "predict memory and time of a run, under every strategy")                        \
    X(SAMPLE, sample, "make pictures with a teacher or a student")                                 \
    X(EVAL, eval, "compare a student with its teacher")                                            \
    X(INSPECT, inspect, "describe a model folder or file")                                         \
    X(CONVERT, convert, "write a transformer in another format")                                   \
    X(REPORT, report, "make a page about runs, with curves and samples")                           \
    X(TELL, tell, "have a run under way draw a sheet, write a checkpoint, or end")                 \
    X(FORWARD, forward, "run one component on given tensors, to compare with a reference")         \
    X(BENCH, bench, "measure this machine and this program")

typedef enum wd_job {
#define WD_JOB_LINE_(job, name, summary) WD_JOB_##job,
    WD_JOB_MAP(WD_JOB_LINE_)
#undef WD_JOB_LINE_
        WD_JOB_COUNT,
    WD_JOB_COMMON = WD_JOB_COUNT /* not a job: the table of wd_common_options */
} wd_job;

typedef enum wd_option_type {
    WD_OPTION_FLAG,   /* bool */
    WD_OPTION_INT,    /* int64_t */
    WD_OPTION_SEED,   /* uint64_t */
    WD_OPTION_FLOAT,  /* double; NaN: not given */
    WD_OPTION_TEXT,   /* const char *; NULL: not given */
    WD_OPTION_CHOICE, /* const char *, one of `choices`; NULL: not given */
    WD_OPTION_TEXTS   /* wd_texts: one or more */
} wd_option_type;

enum {
    WD_OPTION_REQUIRED = 1,
    WD_OPTION_POSITIONAL = 2, /* may be given without its name */
    WD_OPTION_FILE = 4,       /* a path: for completions */
    WD_OPTION_LEGACY = 8,     /* kept for scripts of the Python version; not in the help */
    /* Every option of `train` is one of these two: its value may make another student, or never
     * does. */
    WD_OPTION_STUDENT = 16,
    WD_OPTION_SAME_STUDENT = 32,
    WD_OPTION_PART = 64,       /* names a part of a model that lies elsewhere than in its folder */
    WD_OPTION_OR_PARTS = 128,  /* required only where no part is named */
    WD_OPTION_WRITTEN = 256,   /* a WD_OPTION_FILE that the job writes */
    WD_OPTION_OR_TARGETS = 512 /* required only where the option targets is not given */
};

/* One option of a job. All strings are static. */
typedef struct wd_option {
    const char *name; /* "batch_size"; '-' and '_' are the same wherever a name is given */
    wd_option_type type;
    size_t offset;              /* of its field in the options struct */
    const char *default_text;   /* as a user would give it; "": not given */
    const char *bare;           /* the value of the option without one; NULL: a value is needed */
    const char *const *choices; /* ended by NULL: the values of a WD_OPTION_CHOICE, or words that a
                                   WD_OPTION_INT takes, too, and that stand for -1, -2, ... */
    double min, max;            /* of numbers */
    const char *metavar;        /* "FILE" */
    const char *group;          /* "Training" */
    const char *help;           /* one sentence or a few, without a full stop at the end */
    unsigned flags;             /* WD_OPTION_REQUIRED ... */
} wd_option;

WD_API const char *wd_job_name(wd_job job);    /* "train" */
WD_API const char *wd_job_summary(wd_job job); /* one line */

/* Finds the job called `name`. Unknown: WD_INVALID_ARGUMENT, and the error has the nearest name. */
WD_API wd_status wd_job_find(wd_job *out, const char *name, wd_err *err);

/* The table of a job, in the order of its help. */
WD_API const wd_option *wd_options_of(wd_job job, int64_t *count);

/* Bytes of the job's options struct. */
WD_API size_t wd_options_bytes(wd_job job);

/* Fills the job's options struct, which has `bytes` bytes, with the defaults of its table; required
 * options are NULL. Where the library's struct has another size, everything is set to zero, which
 * every job refuses. */
WD_API void wd_options_default(void *options, size_t bytes, wd_job job);

/* wd_train_options wd_train_defaults(void), and so on for each job. */
#define WD_DEFAULTS_LINE_(JOB, job, summary)                                                       \
    static inline wd_##job##_options wd_##job##_defaults(void)                                     \
    {                                                                                              \
        wd_##job##_options options;                                                                \
        wd_options_default(&options, sizeof options, WD_JOB_##JOB);                                \
        return options;                                                                            \
    }
WD_JOB_MAP(WD_DEFAULTS_LINE_)
#undef WD_DEFAULTS_LINE_

/* The option called `name`, without leading dashes. Unknown: NULL, and the error has the nearest
 * name. */
WD_API const wd_option *wd_option_find(wd_job job, const char *name, wd_err *err);

/* Sets the option's field of `options` to `value`; to a list (WD_OPTION_TEXTS) it appends `value`.
 * The text is borrowed for as long as the options are used. A value of another type, out of range
 * or not among the choices is an error that says what was expected and found. */
WD_API wd_status wd_option_set(void *options, const wd_option *option, const char *value,
                               wd_err *err);

enum { WD_OPTIONS_MAX = 128 }; /* of a job */

/* The options that one source, a command line or a file, has given. A later source replaces values
 * of an earlier one; the options of one source must not contradict one another. A zeroed struct is
 * a source that has given nothing. */
typedef struct wd_option_source {
    const wd_option *given[WD_OPTIONS_MAX]; /* [count], for each field the last option given */
    int64_t count;
} wd_option_source;

/* Sets an option as wd_option_set does, and records that the source has given it. The first text
 * that a source gives to a list (WD_OPTION_TEXTS) replaces the texts of earlier sources; further
 * ones are appended. Two options of a source that give one field different values
 * (--teacher_on_cpu, --balance_teacher) are an error that names both. */
WD_API wd_status wd_option_give(wd_option_source *source, void *options, const wd_option *option,
                                const char *value, wd_err *err);

/* Call this after the last wd_option_give of a source. Options of the source that contradict one
 * another are an error that names both. Values of earlier sources that contradict this source are
 * reset to their defaults. */
WD_API wd_status wd_option_source_end(const wd_option_source *source, wd_job job, void *options,
                                      wd_err *err);

/* Checks that the required options are given, that all values are in range, and that none
 * contradicts another. Every job calls this first. */
WD_API wd_status wd_options_check(wd_job job, const void *options, wd_err *err);

/* Writes the option's value as a user would give it ("" : not given, texts joined by ", ") into
 * `out`, cut to its size; returns `out`. */
WD_API const char *wd_option_text(char *out, size_t out_bytes, const void *options,
                                  const wd_option *option);

/* A file of options: a JSON object of option names and values (numbers, true and false, texts, and
 * arrays of texts), or the run.json of a run, from which it takes "options": the options that the
 * run was given, without values that were derived from them. Paths are relative to the folder of
 * the file: those of files to read where they are there, and those of files that a job writes;
 * other values are taken as they are. It owns the strings that
 * wd_config_apply puts into options, so close it after the options were used. */
typedef struct wd_config wd_config;

WD_API wd_status wd_config_open(wd_config **out, const char *path, wd_err *err);
WD_API void wd_config_close(wd_config *config); /* NULL is allowed */

/* Sets the options that the file names, as one source. An unknown name, an unusable value, or a
 * contradiction is an error that names the file and the option. */
WD_API wd_status wd_config_apply(wd_config *config, wd_job job, void *options, wd_err *err);

/* ---- options by name ----
 *
 * For programs that know no struct, such as bindings of other languages: names and values are
 * texts, and results are JSON. */

/* The options of one job. They own copies of all texts that were set. */
typedef struct wd_options wd_options;

/* Makes the options of `job` with the defaults of its table. The caller frees *out with
 * wd_options_free. */
WD_API wd_status wd_options_new(wd_options **out, wd_job job, wd_err *err);
WD_API void wd_options_free(wd_options *options); /* NULL is allowed */

/* Sets the option called `name`, without leading dashes, as the command line does: a list
 * (WD_OPTION_TEXTS) gets one more text, any other option gets the value in place of an earlier one;
 * NULL is the value of an option that is given without one (`bare` of its table), and of a list
 * without texts, which takes the place of a file's.
 * "config" applies a file of options (wd_config_open), and is set first, since later calls replace
 * the file's values. `name` and `value` are copied. WD_INVALID_ARGUMENT: an unknown name, with the
 * nearest one; or an unusable value, with what was expected. After an error the options can only be
 * freed. */
WD_API wd_status wd_options_set(wd_options *options, const char *name, const char *value,
                                wd_err *err);

/* Runs the job. *result: JSON, which the caller frees with wd_text_free; it is set where the job's
 * own function sets its text. plan, eval and inspect give what they print with the option json.
 * train gives {"stopped", "steps", "targets", "loss", "seconds", "output_dir"}, with the values of
 * wd_train_result, numbers that are not finite as null; sample, convert, forward and report give
 * {"out"}; tell gives {}; bench gives {"lines"}. Bytes of a path that are not UTF-8 are U+FFFD.
 * `train` starts no ranks here: see wd_train_start_ranks. */
WD_API wd_status wd_options_run(char **result, wd_options *options, wd_err *err);

/* The table of a job as a JSON array, in the order of its help, with an object for each option:
 * {"name", "type", "default", "bare", "choices", "min", "max", "metavar", "group", "help",
 * "required", "positional", "file", "written", "legacy"}: the fields of wd_option, null where they
 * are empty. The type is "flag", "int", "seed", "float", "text", "choice" or "texts". The caller
 * frees *text with wd_text_free. */
WD_API wd_status wd_options_list(char **text, wd_job job, wd_err *err);

#ifdef __cplusplus
}
#endif
#endif
