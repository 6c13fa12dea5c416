/* Decoding of latents to pictures, the last step of the pipeline. */
#ifndef WD_MODEL_SAMPLING_PICTURE_H
#define WD_MODEL_SAMPLING_PICTURE_H

#include "dev/device.h"
#include "model/files/pipeline.h"

/* Computes pixels [count, 3, H s, W s] fp32 in [0, 1] (host) from diffusion latents [count, C, 1,
 * H, W] fp32 (host, overwritten). It un-normalises, decodes with the pipeline's VAE, which is
 * loaded for this call only, and maps [-1, 1] to [0, 1] as diffusers' postprocess_video does.
 * WD_NOT_FINITE: a pixel is NaN or infinite, because the latents or the VAE's weights are. */
wd_status wd_pictures_decode(float *image, float *latents, int64_t count, int64_t height,
                             int64_t width, const wd_pipeline *pipeline, wd_queue *queue,
                             wd_err *err);

/* Checks the values of pictures [first, first + count), `each` values per picture: WD_NOT_FINITE if
 * one is not finite. The error calls the values `what` ("latents") and their origin `from`. */
wd_status wd_pictures_check(const float *values, int64_t first, int64_t count, int64_t each,
                            const char *what, const char *from, wd_err *err);

#endif
