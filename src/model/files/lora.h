/* LoRAs of a transformer: files with small changes of its weights.
 *
 *   weight += strength alpha / rank B A, or strength diff       bias += strength diff_b
 *
 * A [rank, columns] and B [rows, rank] are the factors of a product as large as the weight; what
 * alpha / rank is, and where a file says it, model/files/lora_scale.h explains. Opening a list of
 * files finds what each tensor changes and checks all shapes, so that merging
 * (model/files/overlay.h), which adds the changes to the rows of each tensor, can only fail for
 * lack of space, or because a value does not fit its dtype. */
#ifndef WD_MODEL_FILES_LORA_H
#define WD_MODEL_FILES_LORA_H

#include "io/file/file.h"
#include "io/tensors/safetensors.h"

enum { WD_LORAS_MAX = 16, WD_LORA_KEY_MAX = 33 };

/* A change of one tensor by one file. */
typedef struct wd_lora_change {
    int64_t line; /* of the tensor table */
    int file;
    const wd_tensor *up, *down; /* [rows, rank], [rank, columns]; NULL for a diff */
    const wd_tensor *diff;      /* of the tensor's shape; NULL for a product */
    int64_t rank;
    float scale;
} wd_lora_change;

typedef struct wd_lora_file {
    char path[WD_PATH_MAX];
    double strength;
    uint64_t scales_hash; /* of factors that are not in the tensors; 0: there are none */
    wd_safetensors *set;
} wd_lora_file;

typedef struct wd_loras {
    wd_lora_file file[WD_LORAS_MAX];
    int count;
    wd_lora_change *change; /* by line, those of a line by file */
    int64_t changes;
} wd_loras;

/* Opens the files of "FILE[:strength],FILE[:strength],...", for a transformer with this table. A
 * path has no comma in it. Every tensor of every file is used, or named in the error. */
wd_status wd__loras_open(wd_loras *out, const char *text, const wd_tensor_table *table,
                         wd_err *err);
void wd__loras_close(wd_loras *loras); /* a zeroed one is fine */

/* Identifies the files' content and strengths, and `more`, any text of the caller of at most 64
 * characters. */
void wd__loras_key(char out[WD_LORA_KEY_MAX], const wd_loras *loras, const char *more);

/* The same of LoRAs that are not open. */
wd_status wd__lora_key(char out[WD_LORA_KEY_MAX], const char *text, const wd_tensor_table *table,
                       const char *more, wd_err *err);

/* ---- adding a change to rows of a tensor ---- */

/* Room for the factors of a change. */
typedef struct wd_lora_room {
    float *up, *down; /* grow as needed */
    float *sum;       /* [some columns] */
} wd_lora_room;

/* rows [count, columns] += the change's rows [first, first + count). The order of a sum is fixed,
 * by rank, so the bits are the same on every processor. */
wd_status wd__lora_add(float *rows, wd_lora_room *room, const wd_lora_change *change, int64_t first,
                       int64_t count, int64_t columns, wd_err *err);
void wd__lora_room_close(wd_lora_room *room); /* a zeroed one is fine */

#endif
