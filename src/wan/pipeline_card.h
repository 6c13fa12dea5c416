/* The picture size, and the number of sampling steps, for which a model was made. Internal to
 * wan/pipeline. */
#ifndef WD_WAN_PIPELINE_CARD_H
#define WD_WAN_PIPELINE_CARD_H

#include "wan/pipeline.h"

/* Reads the size from a configuration. The size stays as it is if the configuration has none, or if
 * a size was found before. */
wd_status wd_pipeline_size_read(int64_t *height, int64_t *width, wd_json_reader r, wd_err *err);

/* Reads default_steps from the model card (README.md), and the default size if none was found
 * before. They stay as they are if the card has none. */
wd_status wd_pipeline_card_read(wd_pipeline *pipeline, wd_err *err);

#endif
