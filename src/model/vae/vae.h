/* Folder model/vae. The VAE: encoder and decoder.
 *
 * The Wan VAE (diffusers AutoencoderKLWan), 2.1 and 2.2 layout: decode and encode.
 *
 * Weights and activations are fp32, as in diffusers' pipelines; F16 and BF16 files are converted.
 * Activations are channels-last on the device. For one latent frame only the last time tap of each
 * causal convolution is computed, since the others see zeros. */
#ifndef WD_MODEL_VAE_VAE_H
#define WD_MODEL_VAE_VAE_H

#include "dev/device.h"
#include "io/tensors/safetensors.h"
#include "model/tables/config.h"

wd_status wd_vae_table_open(wd_tensor_table *out, const wd_vae_config *config, wd_err *err);
void wd_vae_table_close(wd_tensor_table *table);

typedef struct wd_vae wd_vae;

typedef enum wd_vae_part { WD_VAE_DECODER = 1, WD_VAE_ENCODER = 2, WD_VAE_BOTH = 3 } wd_vae_part;

/* Loads the part's weights. `queue` is borrowed. */
wd_status wd_vae_open(wd_vae **out, const wd_vae_config *config, const wd_safetensors *weights,
                      wd_vae_part part, wd_queue *queue, wd_err *err);
void wd_vae_close(wd_vae *vae);

/* Computes pictures fp32 in [-1, 1], clamped: image [B, 3, 4 (F - 1) + 1, H s, W s] (host) from
 * un-normalised z [B, z_dim, F, H, W] fp32 (host). The decoder must be open. */
wd_status wd_vae_decode(wd_vae *vae, float *image, const float *z, const int64_t dim[5],
                        wd_err *err);

/* Computes the mean of the latent distribution [B, z_dim, 1 + (F - 1) / 4, H / s, W / s] of image
 * [B, 3, F, H, W] (both fp32, host). Frames beyond 4 k + 1 are dropped, as in the reference. The
 * encoder must be open. */
wd_status wd_vae_encode(wd_vae *vae, float *mean, const float *image, const int64_t dim[5],
                        wd_err *err);

/* The peak of device bytes of wd_vae_decode for this shape, without weights and the queue's
 * workspace. Large pictures are decoded one after the other, small ones together. */
size_t wd_vae_decode_bytes(const wd_vae_config *config, const int64_t dim[5]);

/* Convert diffusion latents x to the VAE's z and back, in place, as the pipeline does: z = x / (1 /
 * std) + mean. */
void wd_vae_unnormalize(float *latents, const wd_vae_config *config, const int64_t dim[5]);
void wd__vae_normalize(float *latents, const wd_vae_config *config, const int64_t dim[5]);

#endif
