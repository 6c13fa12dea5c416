/* Names in LoRA files: which module of a transformer, and which part of its change, a tensor is.
 *
 * A key is a prefix, a module, and a suffix that says the part. Modules go by diffusers' names, by
 * the original release's, or by either with underscores in place of dots, as kohya's trainers write
 * them: all spellings are made from the tensor table, so that a name has not to be parsed. */
#ifndef WD_MODEL_FILES_LORA_NAME_H
#define WD_MODEL_FILES_LORA_NAME_H

#include "core/error.h"
#include "core/tensor.h"

typedef enum wd_lora_part {
    WD_LORA_DOWN,   /* A [rank, columns], "lora_A.weight" or "lora_down.weight" */
    WD_LORA_UP,     /* B [rows, rank], "lora_B.weight" or "lora_up.weight" */
    WD_LORA_ALPHA,  /* a scalar: the product is scaled by alpha / rank */
    WD_LORA_DIFF,   /* what is added to the weight, or, as "diff_m", to the modulation */
    WD_LORA_DIFF_B, /* what is added to the bias */
    WD_LORA_PARTS
} wd_lora_part;

typedef struct wd_lora_module {
    char name[WD_TENSOR_NAME_MAX];
    int64_t weight, bias; /* lines of the tensor table; bias -1: it has none */
} wd_lora_module;

/* Every spelling of every module, by name. */
typedef struct wd_lora_modules {
    wd_lora_module *module;
    int64_t count;
} wd_lora_modules;

/* Of a transformer's table. */
wd_status wd__lora_modules_open(wd_lora_modules *out, const wd_tensor_table *table, wd_err *err);
void wd__lora_modules_close(wd_lora_modules *modules); /* a zeroed one is fine */

/* Finds what the tensor `key` of a LoRA file is. A key that is of no text-to-video transformer, or
 * of another kind of adapter, is an error that names `where`, the file, and the key. */
wd_status wd__lora_resolve(const wd_lora_module **module, wd_lora_part *part,
                           const wd_lora_modules *modules, const char *key, const char *where,
                           wd_err *err);

#endif
