/* The UMT5 text encoder (transformers UMT5EncoderModel), forward only.
 *
 * Weights stay in the mapped file: they are used in place where the device reads host memory and
 * the file has the compute dtype, else one layer at a time is brought to the device and converted.
 * Either way the encoder's own memory is one layer at most, so a call takes all its prompts through
 * a layer before it goes on to the next. */
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

/* Computes in `dtype`: F32 or BF16 (another file dtype is converted; never computes in F16).
 * `weights` and `queue` are borrowed. */
wd_status wd_umt5_open(wd_umt5 **out, const wd_umt5_config *config, const wd_safetensors *weights,
                       wd_dtype dtype, wd_queue *queue, wd_err *err);
void wd_umt5_close(wd_umt5 *encoder); /* NULL is allowed */

/* last_hidden_state [B, S, d_model] of token ids [B, S] (host), with attention_mask [B, S] (host, 1
 * = attend) or NULL for all ones. `out`: host memory, F32, written when the call returns. Ids out
 * of the vocabulary are an error. */
wd_status wd_umt5_encode(wd_umt5 *encoder, float *out, const int32_t *ids, const int32_t *mask,
                         int64_t samples, int64_t tokens, wd_err *err);

/* The same for prompts of different lengths, one behind the other without padding: prompt i is rows
 * first[i] to first[i + 1] of ids [first[samples]] and of out [first[samples], d_model] (host, in
 * the encoder's dtype). Equals the kept rows of wd_umt5_encode with padding masked. Prompts that
 * neighbour one of their own length are fastest. */
wd_status wd_umt5_encode_rows(wd_umt5 *encoder, void *out, const int32_t *ids, const int64_t *first,
                              int64_t samples, wd_err *err);

#endif
