/* The tensors of a converted model, and the file that they become: part of model/convert/convert.h.
 *
 * Tensors are read from a mapped source, widened, and encoded in pieces, so memory does not grow
 * with the model. */
#ifndef WD_MODEL_CONVERT_CONVERT_LINES_H
#define WD_MODEL_CONVERT_CONVERT_LINES_H

#include "io/tensors/safetensors.h"

/* A tensor that is converted. */
typedef struct wd_convert_line {
    const wd_safetensors_entry *from;
    char name[WD_TENSOR_NAME_MAX]; /* in the file */
    wd_dtype dtype;                /* in the file: one that wd_values_encode makes, or its own */
    float
        scale; /* of F8_E4M3: what the file's values are to be multiplied by; the writer sets it */
} wd_convert_line;

/* The dtype of a tensor in a file, where `asked` is what the user wants, or WD_DTYPE_COUNT: as it
 * is stored. What stays fp32 (keep_f32) is F32 in every file.
 *
 * Safetensors files: F8_E4M3 means the matrices of blocks, and bfloat16 for all others, as in the
 * files that Comfy-Org and Kijai publish. What is stored in another quantised form becomes
 * bfloat16. */
wd_dtype wd_convert_safetensors_dtype(const wd_tensor_spec *spec, wd_dtype stored, wd_dtype asked);

/* GGUF files follow ComfyUI-GGUF (tools/convert.py, tools/lcpp.patch): F32 for all but matrices,
 * and for those of at most 1024 values; Q8_0 and Q4_K for the matrices of blocks alone. A row that
 * is no multiple of 256 values is Q8_0, not Q4_K; one that is no multiple of 32, and every other
 * matrix, has 16 bits: bfloat16 if it is stored so or quantised, else float16. */
wd_dtype wd_convert_gguf_dtype(const wd_tensor_spec *spec, wd_dtype stored, wd_dtype asked);

/* Writes the file. Lines of F8_E4M3 are written as ComfyUI's scaled fp8: for each "x.weight" the
 * scale of all its values, "x.scale_weight", and for the file the mark "scaled_fp8". `metadata`:
 * pairs key, value, ..., NULL. A value that the dtype cannot hold is an error. */
wd_status wd__convert_write_safetensors(const char *path, wd_convert_line *lines, int64_t count,
                                        const char *const *metadata, wd_err *err);

/* Writes a GGUF file of the architecture "wan". `config`: the configuration as JSON. */
wd_status wd__convert_write_gguf(const char *path, wd_convert_line *lines, int64_t count,
                                 const char *config, wd_err *err);

#endif
