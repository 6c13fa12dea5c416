/* The state of the UMT5 encoder, and the loading of a layer's weights. Private to umt5*.c. */
#ifndef WD_MODEL_TEXT_UMT5_IMPL_H
#define WD_MODEL_TEXT_UMT5_IMPL_H

#include "core/memory.h"
#include "model/text/umt5_table.h"

struct wd_umt5 {
    wd_umt5_config config;
    wd_dtype dtype;
    wd_queue *queue;
    const wd_safetensors_entry **line; /* [lines] of the table */
    const wd_safetensors_entry *embedding;
    void *stage; /* device: the tensors of one layer that are not used in place */
    void *raw;   /* device: a tensor as in the file, before it is converted */
    size_t stage_bytes, raw_bytes;
};

/* The tensor in the compute dtype: in the mapped file, or copied to `stage` on e->queue. */
wd_tensor wd__umt5_bring(wd_umt5 *e, wd_arena *stage, const wd_safetensors_entry *w);

/* Does this for all tensors of a layer but its bias table, which the host reads. They replace those
 * of the previous layer. The system is told to read the next layer from disk. */
void wd__umt5_bring_layer(wd_tensor w[WD_UMT5_LAYER_SLOTS], wd_umt5 *e, int64_t layer);

#endif
