/* The tokenizer of a pipeline, wherever it lies: see model/files/pipeline.h. */
#include <string.h>
#include "core/memory.h"
#include "core/text.h"
#include "io/tensors/gguf.h"
#include "model/files/pipeline.h"

enum { SPIECE_BYTES_MAX = 64 << 20 }; /* of UMT5 5 MB */

/* The tensor of a text encoder's file. */
static wd_status take_tensor(char **out, size_t *bytes, const char *path, wd_err *err)
{
    static const char name[] = "spiece_model";
    wd_safetensors *set;
    void *block;
    WD_TRY(wd_safetensors_open(&set, path, err));
    const wd_safetensors_entry *e = wd_safetensors_find(set, name);
    const size_t found = e ? wd_tensor_bytes(&e->tensor) : 0;
    wd_status status;
    if (!e || e->tensor.dtype != WD_U8 || e->tensor.ndim != 1 || found > SPIECE_BYTES_MAX) {
        status = wd_fail(err, WD_UNSUPPORTED,
                         "%s: expected a tensor \"%s\" of at most %d bytes (U8, one dimension), "
                         "which holds the tokenizer; give another file or folder as --tokenizer",
                         path, name, SPIECE_BYTES_MAX);
    } else {
        status = wd_alloc(&block, found + 1, 1, "a tokenizer's model", err);
        if (status == WD_OK) {
            if (found) memcpy(block, e->tensor.data, found);
            *out = block;
            *bytes = found;
        }
    }
    wd_safetensors_close(set);
    return status;
}

/* The metadata of a text encoder's file. */
static wd_status take_metadata(char **out, size_t *bytes, const char *path, wd_err *err)
{
    wd_safetensors *set;
    WD_TRY(wd_safetensors_open(&set, path, err));
    const wd_status status = wd_gguf_spiece(out, bytes, set, err);
    wd_safetensors_close(set);
    return status;
}

wd_status wd_pipeline_spiece(char **out, size_t *bytes, const wd_pipeline *p, wd_err *err)
{
    const char *path = p->part[WD_COMPONENT_TOKENIZER];
    if (wd_ends_with(path, ".safetensors")) return take_tensor(out, bytes, path, err);
    if (wd_ends_with(path, ".gguf")) return take_metadata(out, bytes, path, err);
    if (wd_ends_with(path, ".json"))
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: expected spiece.model, which is what this program reads; get that of "
                       "google/umt5-xxl",
                       path);
    return wd_file_read(out, bytes, path, SPIECE_BYTES_MAX, err);
}

wd_status wd_pipeline_tokenizer_open(wd_tokenizer **out, const wd_pipeline *p, wd_err *err)
{
    const wd_component c = WD_COMPONENT_TOKENIZER;
    char folder[WD_PATH_MAX];
    char *model;
    size_t bytes;
    WD_TRY(wd_pipeline_require(p, c, err));
    if (!p->made[c]) {
        WD_TRY(wd_pipeline_folder(folder, p, c, err));
        return wd_tokenizer_open(out, folder, err);
    }
    WD_TRY(wd_pipeline_spiece(&model, &bytes, p, err));
    const wd_status status = wd_tokenizer_open_model(out, model, bytes, p->part[c], err);
    wd_free(model);
    return status;
}
