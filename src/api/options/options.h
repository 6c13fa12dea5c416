/* Folder api/options. Options: their tables, parsing, files of options, hints.
 *
 * What other folders call of it, beside the public functions of wandistiller.h: options as JSON, as
 * a command line, and those that name files. */
#ifndef WD_API_OPTIONS_OPTIONS_H
#define WD_API_OPTIONS_OPTIONS_H

#include "io/json/json.h"
#include "model/files/pipeline.h"
#include "wandistiller.h"

/* ---- options as JSON, and JSON as text: config.c ---- */

/* Makes an object with the options of `train` by name, which --config can read; the caller owns it.
 * Options that are not given are null. Options with the same value in `but` are left out; but NULL:
 * none are. */
json_t *wd_train_options_json(const wd_train_options *options, const wd_train_options *but);

/* Formats JSON with indentation and a final newline. The caller frees *out with wd_free. */
wd_status wd_json_text_of(char **out, const json_t *json, wd_err *err);

/* ---- the command line of a job, which the user can paste: job_command.c ---- */

/* A value that an option gets, by name. */
typedef struct wd_option_value {
    const char *option, *value;
} wd_option_value;

/* Writes "wandistiller sample --model ..." with all options that differ from the job's defaults,
 * after the `changes` changes [changes], quoted for a shell, into `out`. The command gives the same
 * options. If it does not fit, `out` is "wandistiller sample ...". */
void wd_job_command(char *out, size_t out_bytes, wd_job job, const void *options,
                    const wd_option_value *change, int changes);

/* The same for `train`, without changes: "wandistiller train --teacher_path ...". */
void wd_train_command(char *out, size_t out_bytes, const wd_train_options *options);

/* ---- options that name files: option_paths.c ----
 *
 * Paths, which are relative to the folder of a file of options or to the one in which a run began,
 * and parts of a model that lie outside its folder. */

/* Puts `folder` before each relative path among `options`, an object of option names and values:
 * paths of files to read where such a file is in `folder`, since a value may be a Hub id or a text,
 * and paths of what the job writes. Of several prompts none is a path. "~" is no path here: a shell
 * would have replaced it. */
wd_status wd_option_paths_resolve(json_t *options, wd_job job, const char *folder, wd_err *err);

/* The parts that options `o` of any job name. */
#define WD_PARTS_OF(o)                                                                             \
    ((wd_pipeline_parts){.part = {[WD_COMPONENT_TRANSFORMER] = (o)->transformer,                   \
                                  [WD_COMPONENT_TRANSFORMER_2] = (o)->transformer_2,               \
                                  [WD_COMPONENT_TEXT_ENCODER] = (o)->text_encoder,                 \
                                  [WD_COMPONENT_VAE] = (o)->vae,                                   \
                                  [WD_COMPONENT_TOKENIZER] = (o)->tokenizer},                      \
                         .preset = (o)->teacher_preset,                                            \
                         .lora = {(o)->teacher_lora, (o)->teacher_lora_2},                         \
                         .ignores_unknown = (o)->ignore_unknown_tensors})

/* Whether any part is named. */
bool wd_parts_any(const wd_pipeline_parts *parts);

#endif
