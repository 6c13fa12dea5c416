/* The picture size, the number of sampling steps and the length of text for which a model was made,
 * and in how many steps a student was trained.
 *
 * A student of this program says them in its model_index.json, as
 *
 *     "_wandistiller": {"height": 480, "width": 832, "num_inference_steps": 4,
 *                       "max_sequence_length": 512, "trained_steps": 10000}
 *
 * where arguments of diffusers' WanPipeline have its names for them. diffusers ignores keys that
 * begin with an underscore. Its model card is prose for people, and is read only for what such an
 * entry lacks: students of earlier versions have none. */
#ifndef WD_MODEL_FILES_PIPELINE_CARD_H
#define WD_MODEL_FILES_PIPELINE_CARD_H

#include "model/files/pipeline.h"

/* Reads the size from a configuration. The size stays as it is if the configuration has none, or if
 * a size was found before. */
wd_status wd__pipeline_size_read(int64_t *height, int64_t *width, wd_json_reader r, wd_err *err);

/* Makes the entry of a student; NULL: no memory. The caller calls json_decref. */
json_t *wd_pipeline_sampling_json(int64_t height, int64_t width, int64_t steps, int64_t text_tokens,
                                  int64_t trained_steps);
/* The key of that entry. */
extern const char wd_pipeline_sampling_key[];

/* Reads the entry of a model_index.json into default_height, default_width, default_steps,
 * trained_text_tokens and trained_steps. What it lacks stays as it is. */
wd_status wd__pipeline_sampling_read(wd_pipeline *pipeline, wd_json_reader r, wd_err *err);

/* Reads default_steps, the default size and trained_text_tokens from the model card (README.md), as
 * far as they were not found before. Only sentences count: headings, code and the front matter may
 * have names and paths in them. They stay as they are if the card has none. */
wd_status wd__pipeline_card_read(wd_pipeline *pipeline, wd_err *err);

#endif
