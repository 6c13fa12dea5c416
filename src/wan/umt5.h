/* The UMT5 text encoder (transformers UMT5EncoderModel), forward only. */
#ifndef WD_WAN_UMT5_H
#define WD_WAN_UMT5_H

#include "dev/device.h"
#include "io/safetensors.h"
#include "wan/config.h"

/* Its tensor table. "shared.weight" and "encoder.embed_tokens.weight" are both lines that may miss;
 * one of them must be there. Stage 0: embedding; 1 + i: layer i; last: final norm. */
wd_status wd_umt5_table_open(wd_tensor_table *out, const wd_umt5_config *config, wd_err *err);
void wd_umt5_table_close(wd_tensor_table *table);

typedef struct wd_umt5 wd_umt5;

/* Brings the weights to the device in `dtype` (F32 or BF16; F16 files are widened), or uses them in
 * place where the device reads host memory and the file has that dtype: then `weights` must outlive
 * it. `queue` is borrowed. */
wd_status wd_umt5_open(wd_umt5 **out, const wd_umt5_config *config, const wd_safetensors *weights,
                       wd_dtype dtype, wd_queue *queue, wd_err *err);
void wd_umt5_close(wd_umt5 *encoder);

/* last_hidden_state [B, S, d_model] of token ids [B, S] (host), with attention_mask [B, S] (host, 1 =
 * attend) or NULL for all ones. `out`: host memory, F32, written when the call returns. Ids out of
 * the vocabulary are an error. */
wd_status wd_umt5_encode(wd_umt5 *encoder, float *out, const int32_t *ids, const int32_t *mask,
                         int64_t samples, int64_t tokens, wd_err *err);

#endif
