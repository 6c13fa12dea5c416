/* Folder model/files. Models as others write them: pipeline folders, single files, LoRAs, presets.
 *
 * A Wan pipeline: what is in it, read and checked once.
 *
 * Data flow: wd_hub_find names the folder; open reads model_index.json and the configs and opens
 * (maps) no weights; a component's weights are opened when they are needed. A folder that just has
 * a component's subfolder opens too, and so does a component's folder itself: what is missing is an
 * error when it is asked for.
 *
 * Any component may lie elsewhere, as a single file or a folder of its own (a "part"), with or
 * without a pipeline folder for the others; and folders of ComfyUI's models and of Wan's own
 * repositories are taken for the parts they hold (model/files/layout.c). Of a part without a
 * configuration file the configuration follows from its tensors (model/files/component_file.h), and
 * what no tensor says from a preset. */
#ifndef WD_MODEL_FILES_PIPELINE_H
#define WD_MODEL_FILES_PIPELINE_H

#include "io/file/file.h"
#include "io/tensors/safetensors.h"
#include "io/text/tokenizer.h"
#include "model/files/overlay.h"
#include "model/tables/config.h"
#include "model/tables/naming.h"

enum { WD_PIPELINE_DEFAULT_PIXELS = 512, WD_PIPELINE_DEFAULT_STEPS = 20 };

/* Components that lie elsewhere than in a pipeline's folder. Borrowed texts; NULL: none. */
typedef struct wd_pipeline_parts {
    const char *part[WD_COMPONENT_COUNT]; /* files or folders; of a scheduler always NULL */
    const char *preset;                   /* says what no file does: see wd__preset_complete */
    const char *lora[2];                  /* LoRAs of each expert: see wd__loras_open */
    bool ignores_unknown; /* tensors that no Wan model has are left out: see wd_extra_check */
    bool is_start;   /* a student starts from it: the log says neither which preset was taken, nor
                      * whether a file is given for the wrong one of two experts */
    bool one_expert; /* of two, only one is used: LoRAs for it alone are no reason to warn */
} wd_pipeline_parts;

typedef struct wd_pipeline {
    char path[WD_PATH_MAX];                     /* its folder; without one, the first part */
    char part[WD_COMPONENT_COUNT][WD_PATH_MAX]; /* where a component is that is a part; "": none */
    bool made[WD_COMPONENT_COUNT]; /* its configuration is in no file: see wd_pipeline_config */
    bool bare; /* path is not above its only component's folder, but that folder itself */
    bool has[WD_COMPONENT_COUNT];    /* named by model_index.json, if there is one, and there */
    bool listed[WD_COMPONENT_COUNT]; /* named by model_index.json */
    char class_name[WD_COMPONENT_COUNT][64]; /* from model_index.json or config.json */
    wd_dit_config dit;                       /* of transformer; transformer_2 must agree */
    wd_umt5_config umt5;
    wd_vae_config vae;
    wd_scheduler_config scheduler;
    double boundary_ratio; /* 0: one expert at all timesteps */
    bool expand_timesteps;
    /* Pixels: those of a student's entry in model_index.json (model/files/pipeline_card.h), else
     * "sample_size" or "image_size" of model_index.json or transformer/config.json (a number or
     * [height, width]), else the first "<width>x<height>" after the word "sample" in a sentence of
     * the model card (README.md), else WD_PIPELINE_DEFAULT_PIXELS. This is the size of pictures,
     * also of a model whose videos are larger. */
    int64_t default_height, default_width;
    int64_t default_steps;    /* of sampling: of that entry, else "<steps> steps" in that sentence
                               * of the card, else 20 */
    double guidance_scale[2]; /* of each expert, as its authors recommend; 5: unknown */
    const char *negative_prompt; /* the authors', less its words against still pictures; "": none */
    int64_t text_tokens;         /* default text length: trained_text_tokens, else the tokenizer's
                                  * model_max_length, at most 512 */
    int64_t trained_text_tokens; /* with which a student of this program was trained; 0: unknown */
    int64_t trained_steps;       /* that such a student has made; 0: unknown */
    bool ignores_unknown;        /* see wd_pipeline_parts */
    const char *lora[2];         /* LoRAs that are merged into each expert; borrowed; NULL: none */
    wd_overlay overlay;          /* where their results lie, and what is quantised: see
                                  * wd_pipeline_make_overlay */
} wd_pipeline;

/* Opens a pipeline; `name` is a folder or a Hub id. There is nothing to close. */
wd_status wd_pipeline_open(wd_pipeline *out, const char *name, wd_err *err);

/* The same with some components from elsewhere. `name` NULL: all that there is are the parts. Says
 * in the log which preset has been taken. */
wd_status wd_pipeline_open_parts(wd_pipeline *out, const char *name, const wd_pipeline_parts *parts,
                                 wd_err *err);

/* WD_NOT_FOUND, saying what is there, unless the pipeline has the component. */
wd_status wd_pipeline_require(const wd_pipeline *pipeline, wd_component component, wd_err *err);

/* Checks that the transformer exists, and the second expert if the model has one. A download that
 * lacks the second expert, or model_index.json with the boundary between the experts, is an error.
 */
wd_status wd_pipeline_require_experts(const wd_pipeline *pipeline, wd_err *err);

/* Makes the tensor table of a component with weights; the caller closes it. */
wd_status wd_pipeline_table_open(wd_tensor_table *out, const wd_pipeline *pipeline,
                                 wd_component component, wd_err *err);
void wd_pipeline_table_close(wd_tensor_table *table, wd_component component);

/* Maps a component's weights. A missing tensor, another shape or another dtype than the tensor
 * table has is an error. Tensors that the table lacks are an error, too, or, where the pipeline
 * ignores them, a warning in the log: see wd_extra_check. The caller closes *out. Tensors that
 * LoRAs change, or that are quantised, have no data until wd_pipeline_make_overlay has been called.
 */
wd_status wd_pipeline_open_weights(wd_safetensors **out, const wd_pipeline *pipeline,
                                   wd_component component, wd_err *err);

/* Merges the LoRAs of all experts and quantises what p->overlay says: writes the changed tensors to
 * files in p->overlay.folder, unless they are there. Where nothing is changed it does nothing. */
wd_status wd_pipeline_make_overlay(const wd_pipeline *pipeline, wd_err *err);

/* Writes wd_safetensors_key of a component's weights and `more`, at most 64 characters, into `out`;
 * LoRAs count, and what is quantised. */
wd_status wd_pipeline_weights_key(char out[WD_LORA_KEY_MAX], const wd_pipeline *pipeline,
                                  wd_component component, const char *more, wd_err *err);

/* Opens and closes the weights of a component, to check them; for the transformer those of all
 * experts. */
wd_status wd_pipeline_check_weights(const wd_pipeline *pipeline, wd_component component,
                                    wd_err *err);

/* A component's configuration: its file's, or, where it has none, one that says the same. *out is
 * the caller's to json_decref. */
wd_status wd_pipeline_config(json_t **out, const wd_pipeline *pipeline, wd_component component,
                             wd_err *err);

/* The tokenizer's SentencePiece model, where it is not in a folder: a file of its own, or the
 * tensor "spiece_model" (U8) that text encoders for ComfyUI have. *out is the caller's to
 * wd_free. */
wd_status wd_pipeline_spiece(char **out, size_t *bytes, const wd_pipeline *pipeline, wd_err *err);

wd_status wd_pipeline_tokenizer_open(wd_tokenizer **out, const wd_pipeline *pipeline, wd_err *err);

/* Where a component lies: its folder, or a part that may be a file. */
wd_status wd_pipeline_folder(char out[WD_PATH_MAX], const wd_pipeline *pipeline,
                             wd_component component, wd_err *err);

/* The path of a component's configuration file. */
wd_status wd_pipeline_config_path(char out[WD_PATH_MAX], const wd_pipeline *pipeline,
                                  wd_component component, wd_err *err);

/* Pixels per latent pixel, and the multiple that height and width must have. */
int64_t wd_pipeline_vae_scale(const wd_pipeline *pipeline);
int64_t wd_pipeline_size_multiple(const wd_pipeline *pipeline);

#endif
