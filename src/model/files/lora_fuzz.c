/* Fuzz target: any bytes as two LoRA files, the second one of PEFT, and as the configuration beside
 * it, for a tiny transformer. What opens is merged, into tensors that can be read. */
#include "fuzzing.h"

#include "model/files/overlay.h"
#include "model/tables/dit_table.h"

/* A transformer's tensors, all of zeros. */
static void write_transformer(const char *path, const wd_tensor_table *table)
{
    static const char zeros[4096];
    wd_safetensors_item *items = calloc((size_t)table->count, sizeof *items);
    wd_safetensors_writer *writer;
    if (!items) abort();
    for (int64_t i = 0; i < table->count; i++) {
        const wd_tensor_spec *spec = &table->spec[i];
        items[i] = (wd_safetensors_item){spec->name, WD_BF16, spec->ndim, {0}};
        memcpy(items[i].dim, spec->dim, sizeof items[i].dim);
    }
    if (wd_safetensors_create(&writer, path, items, table->count, NULL, NULL)) abort();
    for (int64_t i = 0; i < table->count; i++) {
        wd_tensor t = {.dtype = WD_BF16, .ndim = items[i].ndim};
        memcpy(t.dim, items[i].dim, sizeof t.dim);
        if (wd_tensor_bytes(&t) > sizeof zeros) abort();
        if (wd_safetensors_put(writer, zeros, wd_tensor_bytes(&t), NULL)) abort();
    }
    if (wd_safetensors_finish(writer, NULL)) abort();
    free(items);
}

static void look(const wd_safetensors *set)
{
    unsigned sum = 0;
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_tensor *t = &wd_safetensors_at(set, i)->tensor;
        for (size_t k = 0; k < wd_tensor_bytes(t); k++) sum += ((const unsigned char *)t->data)[k];
    }
    wd_fuzz_use(sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"a.safetensors", "adapter_model.safetensors",
                                        "adapter_config.json"};
    static const wd_dit_config config = {.layers = 1,
                                         .heads = 1,
                                         .head_dim = 4,
                                         .ffn_dim = 8,
                                         .freq_dim = 4,
                                         .text_dim = 4,
                                         .in_channels = 1,
                                         .out_channels = 1,
                                         .patch = {1, 2, 2},
                                         .cross_attn_norm = true};
    static wd_tensor_table table;
    static char base[512], folder[512], list[1200];
    wd_safetensors *set;
    uint64_t written;
    wd_err err;
    if (!table.count) {
        if (wd_dit_table_open(&table, &config, &err)) abort();
        snprintf(base, sizeof base, "%s", wd_fuzz_path("base.safetensors"));
        snprintf(folder, sizeof folder, "%s", wd_fuzz_path("merged"));
        snprintf(list, sizeof list, "%s", wd_fuzz_path(names[0]));
        write_transformer(base, &table);
        snprintf(list + strlen(list), sizeof list - strlen(list), ":0.5,%s",
                 wd_fuzz_path(names[1]));
    }
    wd_fuzz_files(names, 3, data, bytes);
    if (wd_safetensors_open(&set, base, &err)) abort();
    const wd_overlay place = {.folder = folder, .dtype = bytes % 2 ? WD_BF16 : WD_F32};
    if (wd_overlay_write(&written, set, list, &table, &place, &err) == WD_OK) {
        if (wd_overlay_apply(set, list, &table, &place, &err)) abort();
        look(set);
    }
    wd_safetensors_close(set);
    wd_folder_remove(folder, NULL);
    return 0;
}
