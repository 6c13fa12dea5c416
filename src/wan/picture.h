/* From latents to pictures: the end of the pipeline. */
#ifndef WD_WAN_PICTURE_H
#define WD_WAN_PICTURE_H

#include "dev/device.h"
#include "wan/pipeline.h"

/* Pixels [count, 3, H s, W s] in [0, 1] (host) of diffusion latents [count, C, 1, H, W] (host,
 * destroyed): un-normalises, decodes with the pipeline's VAE, which is loaded for this call only,
 * and maps [-1, 1] to [0, 1] as diffusers' postprocess_video does. */
wd_status wd_pictures_decode(float *image, float *latents, int64_t count, int64_t height,
                             int64_t width, const wd_pipeline *pipeline, wd_queue *queue,
                             wd_err *err);

/* WD_NOT_FINITE where one of the values of pictures [first, first + count), `each` values per
 * picture, is not finite. `what` names the values ("latents"), `from` where they come from. */
wd_status wd_pictures_check(const float *values, int64_t first, int64_t count, int64_t each,
                            const char *what, const char *from, wd_err *err);

#endif
