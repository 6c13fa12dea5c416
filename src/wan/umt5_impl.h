/* Inside the UMT5 encoder: its state, and where a layer's weights come from. Private to umt5*.c. */
#ifndef WD_WAN_UMT5_IMPL_H
#define WD_WAN_UMT5_IMPL_H

#include "core/arena.h"
#include "wan/umt5_table.h"

struct wd_umt5 {
    wd_umt5_config config;
    wd_dtype dtype;
    wd_queue *queue;
    const wd_safetensors_entry **line; /* [lines] of the table */
    const wd_safetensors_entry *embedding;
    void *stage; /* device: a layer's tensors that are not used in place */
    void *raw;   /* device: a tensor's bytes of the file, before they are converted */
    size_t stage_bytes, raw_bytes;
};

/* The tensor in the compute dtype: where the file is mapped, or brought to `stage` by e->queue. */
wd_tensor wd_umt5_bring(wd_umt5 *e, wd_arena *stage, const wd_safetensors_entry *w);

/* The same for all of a layer but its bias table, which the host reads. They replace those of the
 * layer before; the system is told to read the next layer's from disk. */
void wd_umt5_bring_layer(wd_tensor w[WD_UMT5_LAYER_SLOTS], wd_umt5 *e, int64_t layer);

#endif
