/* The size of pictures, and the number of sampling steps, that a model was made for. Internal to
 * wan/pipeline. */
#ifndef WD_WAN_PIPELINE_CARD_H
#define WD_WAN_PIPELINE_CARD_H

#include "wan/pipeline.h"

/* From a configuration; untouched where it states none, or where a size was found before. */
wd_status wd_pipeline_size_read(int64_t *height, int64_t *width, wd_json_reader r, wd_err *err);

/* From the model card (README.md): default_steps, and the default size where none was found before.
 * Untouched where the card names none. */
wd_status wd_pipeline_card_read(wd_pipeline *pipeline, wd_err *err);

#endif
