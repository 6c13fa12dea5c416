/* Random transformers: see bench/random_transformer.h. */
#include "bench/random_transformer.h"

#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "io/file/file.h"
#include "io/tensors/safetensors.h"
#include "model/tables/dit_table.h"

/* A prime number of values: tensors of round sizes do not repeat one another. */
enum { VALUES = 1048573 };

static const float DEVIATION = 0.02f;

/* The values in every dtype. */
typedef struct pool {
    void *as[WD_DTYPE_COUNT];
    int64_t at; /* where the next tensor begins */
} pool;

static void close_pool(pool *p)
{
    for (int t = 0; t < WD_DTYPE_COUNT; t++) wd_free(p->as[t]);
}

static wd_status open_pool(pool *p, wd_dtype dtype, wd_err *err)
{
    const wd_random key = {.seed = 1, .stream = WD_RANDOM_WEIGHT};
    *p = (pool){.at = 0};
    WD_TRY(wd_alloc(&p->as[WD_F32], VALUES, sizeof(float), "random values", err));
    float *values = p->as[WD_F32];
    wd_random_normal(values, VALUES, key, 0);
    for (int64_t i = 0; i < VALUES; i++) values[i] *= DEVIATION;
    if (dtype == WD_F32) return WD_OK;
    WD_TRY(wd_alloc(&p->as[dtype], VALUES, sizeof(uint16_t), "random values", err));
    uint16_t *narrow = p->as[dtype];
    for (int64_t i = 0; i < VALUES; i++)
        narrow[i] = dtype == WD_BF16 ? wd_f32_to_bf16(values[i]) : wd_f32_to_f16(values[i]);
    return WD_OK;
}

static wd_status put_values(wd_safetensors_writer *writer, pool *p, wd_dtype dtype, int64_t count,
                            wd_err *err)
{
    const size_t item = wd_dtype_bytes(dtype);
    while (count) {
        const int64_t piece = count < VALUES - p->at ? count : VALUES - p->at;
        const char *from = (const char *)p->as[dtype] + (size_t)p->at * item;
        WD_TRY(wd_safetensors_put(writer, from, (size_t)piece * item, err));
        p->at = (p->at + piece) % VALUES;
        count -= piece;
    }
    return WD_OK;
}

static int64_t count_of(const wd_safetensors_item *item)
{
    int64_t count = 1;
    for (int i = 0; i < item->ndim; i++) count *= item->dim[i];
    return count;
}

/* Lists the tensors of a checkpoint: those lines of the table that have elements. */
static int64_t list_items(wd_safetensors_item *item, const wd_tensor_table *table, wd_dtype dtype)
{
    int64_t n = 0;
    for (int64_t line = 0; line < table->count; line++) {
        const wd_tensor_spec *spec = &table->spec[line];
        item[n] = (wd_safetensors_item){
            .name = spec->name, .dtype = wd_spec_dtype(spec, dtype), .ndim = spec->ndim};
        memcpy(item[n].dim, spec->dim, sizeof spec->dim);
        n += count_of(&item[n]) > 0;
    }
    return n;
}

static wd_status write_weights(const char *path, const wd_tensor_table *table, wd_dtype dtype,
                               wd_err *err)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    wd_status status;
    pool values = {.at = 0};
    wd_safetensors_writer *writer = NULL;
    wd_safetensors_item *item;
    WD_TRY(wd_alloc((void **)&item, (size_t)table->count, sizeof *item, "tensors", err));
    const int64_t count = list_items(item, table, dtype);
    WD_TRY_OUT(open_pool(&values, dtype, err));
    WD_TRY_OUT(wd_safetensors_create(&writer, path, item, count, metadata, err));
    for (int64_t i = 0; i < count; i++)
        WD_TRY_OUT(put_values(writer, &values, item[i].dtype, count_of(&item[i]), err));
    status = wd_safetensors_finish(writer, err);
    writer = NULL;
out:
    wd_safetensors_abandon(writer);
    close_pool(&values);
    wd_free(item);
    return status;
}

static wd_status write_config(const char *folder, const wd_dit_config *config, wd_err *err)
{
    char path[WD_PATH_MAX];
    WD_TRY(wd_path_join(path, folder, "config.json", err));
    json_t *json = wd_dit_config_json(config);
    if (!json) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path);
    const wd_status status = wd_json_save(json, path, err);
    json_decref(json);
    return status;
}

wd_status wd_bench_write_transformer(const char *folder, const wd_dit_config *config,
                                     wd_dtype dtype, wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_tensor_table table;
    WD_TRY(wd_folder_make(folder, err));
    WD_TRY(write_config(folder, config, err));
    WD_TRY(wd_path_join(path, folder, "diffusion_pytorch_model.safetensors", err));
    WD_TRY(wd_dit_table_open(&table, config, err));
    const wd_status status = write_weights(path, &table, dtype, err);
    wd_dit_table_close(&table);
    return status;
}
