/* The size of pictures that a model was made for. Internal to wan/pipeline. */
#ifndef WD_WAN_PIPELINE_CARD_H
#define WD_WAN_PIPELINE_CARD_H

#include "wan/pipeline.h"

/* From a configuration; untouched where it states none, or where a size was found before. */
wd_status wd_pipeline_size_read(int64_t *height, int64_t *width, wd_json_reader r, wd_err *err);

/* From the text of the model card (README.md); untouched where it names none. */
wd_status wd_pipeline_size_from_card(int64_t *height, int64_t *width, const wd_pipeline *pipeline,
                                     wd_err *err);

#endif
