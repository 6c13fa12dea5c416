/* Folder model/text. UMT5, the text encoder.
 *
 * The UMT5 text encoder (transformers UMT5EncoderModel), forward only.
 *
 * Weights stay in the mapped file. They are used in place if the device reads host memory and the
 * file has the compute dtype; else one layer at a time is copied to the device and converted. So
 * the encoder needs memory for one layer at most, and a call computes a layer for all prompts
 * before the next layer. */
#ifndef WD_MODEL_TEXT_UMT5_H
#define WD_MODEL_TEXT_UMT5_H

#include "dev/device.h"
#include "io/tensors/safetensors.h"
#include "model/tables/config.h"

/* Makes its tensor table, which the caller closes. "shared.weight" and
 * "encoder.embed_tokens.weight" are two names of one tensor: both lines may miss, but a checkpoint
 * must have one. Stage 0: embedding; 1 + i: layer i; last: final norm. */
wd_status wd_umt5_table_open(wd_tensor_table *out, const wd_umt5_config *config, wd_err *err);
void wd_umt5_table_close(wd_tensor_table *table);

typedef struct wd_umt5 wd_umt5;

/* Computes in `dtype`: F32 or BF16 (another file dtype is converted; never computes in F16).
 * `weights` and `queue` are borrowed. */
wd_status wd_umt5_open(wd_umt5 **out, const wd_umt5_config *config, const wd_safetensors *weights,
                       wd_dtype dtype, wd_queue *queue, wd_err *err);
void wd_umt5_close(wd_umt5 *encoder); /* NULL is allowed */

/* Both functions below: WD_INTERRUPTED: a stop was requested, and `out` is not whole.
 *
 * last_hidden_state [B, S, d_model] of token ids [B, S] (host), with attention_mask [B, S] (host, 1
 * = attend) or NULL for all ones. `out`: host memory, F32, written when the call returns. Ids
 * outside of the vocabulary are an error. */
wd_status wd_umt5_encode(wd_umt5 *encoder, float *out, const int32_t *ids, const int32_t *mask,
                         int64_t samples, int64_t tokens, wd_err *err);

/* Encodes prompts of different lengths without padding, one after the other: prompt i has rows
 * first[i] to first[i + 1] of ids [first[samples]] and of out [first[samples], d_model] (host, in
 * the encoder's dtype). The rows equal those of wd_umt5_encode with masked padding. It is fastest
 * if prompts of equal length are neighbours. */
wd_status wd_umt5_encode_rows(wd_umt5 *encoder, void *out, const int32_t *ids, const int64_t *first,
                              int64_t samples, wd_err *err);

#endif
