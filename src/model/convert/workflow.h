/* A workflow for ComfyUI: the graph that draws a picture with a transformer in one file. */
#ifndef WD_MODEL_CONVERT_WORKFLOW_H
#define WD_MODEL_CONVERT_WORKFLOW_H

#include <stdbool.h>

#include <jansson.h>

#include "core/error.h"

typedef struct wd_workflow {
    const char *unet, *clip, *vae; /* names of files in ComfyUI's folders */
    bool unet_is_gguf;             /* it is loaded by the node of ComfyUI-GGUF */
    const char *prompt;            /* plain text; it is cleaned, and escaped for ComfyUI */
    int64_t latent_channels;       /* 16 or 48 */
    int64_t width, height;         /* pixels */
    int64_t steps;
    double shift, cfg;
    const char *sampler; /* "euler", "dpmpp_2m" */
} wd_workflow;

/* The graph, as ComfyUI opens it (its format 0.4). *out is the caller's to json_decref. Warns of a
 * prompt that has something for which ComfyUI has a meaning and no escape. */
wd_status wd_workflow_make(json_t **out, const wd_workflow *workflow, wd_err *err);

#endif
