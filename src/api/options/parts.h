/* Options that say where parts of a model lie that are not in its folder: what tables, checks and
 * jobs share. */
#ifndef WD_API_OPTIONS_PARTS_H
#define WD_API_OPTIONS_PARTS_H

#include "model/files/pipeline.h"

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
