/* The components of a pipeline. */
#ifndef WD_MODEL_TABLES_COMPONENT_H
#define WD_MODEL_TABLES_COMPONENT_H

typedef enum wd_component {
    WD_COMPONENT_TRANSFORMER,   /* the only expert, or the high-noise one */
    WD_COMPONENT_TRANSFORMER_2, /* the low-noise expert */
    WD_COMPONENT_TEXT_ENCODER,
    WD_COMPONENT_VAE,
    WD_COMPONENT_TOKENIZER,
    WD_COMPONENT_SCHEDULER,
    WD_COMPONENT_COUNT
} wd_component;

const char *wd_component_name(wd_component component); /* its folder: "transformer_2" */

#endif
