/* Writes a pipeline folder whose transformer has random weights and the size of a published model,
 * for bench/placement.py. Text encoder, tokenizer, VAE and scheduler are copies of those of another
 * pipeline, and the transformer gets the text width of that pipeline.
 *
 * Usage: make_pipeline OUTPUT BASE PRESET DTYPE [LAYERS]
 *        make_pipeline /data/14b models/wan-tiny wan2.1-14b bfloat16 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/random_transformer.h"
#include "model/files/pipeline.h"
#include "model/files/preset.h"
#include "train/output/components.h"

static wd_status copy_scheduler(const char *output, const wd_pipeline *base, wd_err *err)
{
    char from[WD_PATH_MAX], folder[WD_PATH_MAX], to[WD_PATH_MAX];
    WD_TRY(wd_pipeline_config_path(from, base, WD_COMPONENT_SCHEDULER, err));
    WD_TRY(wd_path_join(folder, output, wd_component_name(WD_COMPONENT_SCHEDULER), err));
    WD_TRY(wd_folder_make(folder, err));
    WD_TRY(wd_path_join(to, folder, wd_path_name(from), err));
    return wd_file_copy(to, from, err);
}

/* Writes the model_index.json of the base with one expert. */
static wd_status write_index(const char *output, const char *base, wd_err *err)
{
    char path[WD_PATH_MAX];
    json_t *index;
    WD_TRY(wd_path_join(path, base, "model_index.json", err));
    WD_TRY(wd_json_load(&index, path, err));
    json_object_set_new(index, "boundary_ratio", json_null());
    json_object_set_new(index, "transformer_2", json_pack("[n, n]"));
    wd_status status = wd_path_join(path, output, "model_index.json", err);
    if (status == WD_OK) status = wd_json_save(index, path, err);
    json_decref(index);
    return status;
}

static wd_status make(const char *output, const wd_pipeline *base, const wd_dit_config *config,
                      wd_dtype dtype, wd_err *err)
{
    char folder[WD_PATH_MAX];
    WD_TRY(wd_folder_make(output, err));
    WD_TRY(wd_components_take(output, base, WD_EXPORT_COPY, err));
    WD_TRY(copy_scheduler(output, base, err));
    WD_TRY(wd_path_join(folder, output, "transformer", err));
    WD_TRY(wd_bench_write_transformer(folder, config, dtype, err));
    return write_index(output, base->path, err);
}

int main(int argc, char **argv)
{
    wd_err err;
    wd_pipeline base, preset;
    wd_dtype dtype;
    const long layers = argc == 6 ? strtol(argv[5], NULL, 10) : 0;
    if (argc < 5 || argc > 6 || !wd_dtype_parse(&dtype, argv[4]) || (argc == 6 && layers < 1)) {
        fprintf(stderr, "usage: make_pipeline OUTPUT BASE PRESET DTYPE [LAYERS]\n");
        return 2;
    }
    wd_status status = wd_pipeline_open(&base, argv[2], &err);
    if (status == WD_OK) status = wd_preset_pipeline(&preset, argv[3], &err);
    if (status == WD_OK) {
        preset.dit.text_dim = base.dit.text_dim;
        if (layers) preset.dit.layers = layers;
        status = make(argv[1], &base, &preset.dit, dtype, &err);
    }
    if (status != WD_OK) fprintf(stderr, "make_pipeline: %s\n", err.message);
    return status != WD_OK;
}
