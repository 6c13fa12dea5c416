/* Options that name files: paths, which are relative to the folder of a file of options or to the
 * one in which a run began, and parts of a model that lie outside its folder. */
#ifndef WD_API_OPTIONS_OPTION_PATHS_H
#define WD_API_OPTIONS_OPTION_PATHS_H

#include "io/json/json.h"
#include "model/files/pipeline.h"
#include "wandistiller.h"

/* ---- paths ---- */

/* Puts `folder` before each relative path among `options`, an object of option names and values:
 * paths of files to read where such a file is in `folder`, since a value may be a Hub id or a text,
 * and paths of what the job writes. Of several prompts none is a path. "~" is no path here: a shell
 * would have replaced it. */
wd_status wd_option_paths_resolve(json_t *options, wd_job job, const char *folder, wd_err *err);

/* ---- parts of a model ---- */

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
