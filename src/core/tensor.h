/* A tensor is a view: it never owns its memory, and is always contiguous (last dimension fastest).
 * `data` may be device memory: only kernels of dev/ dereference it. */
#ifndef WD_CORE_TENSOR_H
#define WD_CORE_TENSOR_H

#include "core/dtype.h"

enum { WD_DIMS_MAX = 6, WD_TENSOR_NAME_MAX = 128 };

/* What the values of a quantised tensor are multiplied by. A tensor of `dim[0]` rows has a scale
 * for all of it, for each row, or for each of `columns` equal parts of every row. */
typedef struct wd_scales {
    void *data; /* [rows, columns] dtype; NULL: the dtype needs none, or values are as they are */
    wd_dtype dtype;
    int64_t rows, columns; /* rows: 1 or dim[0] */
} wd_scales;

typedef struct wd_tensor {
    void *data;
    wd_dtype dtype;
    int ndim;
    int64_t dim[WD_DIMS_MAX];
    wd_scales scales;
} wd_tensor;

/* Number of elements; 1 for a scalar (ndim 0). */
static inline int64_t wd_tensor_count(const wd_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= t->dim[i];
    return n;
}

/* Of its values, without scales. */
static inline size_t wd_tensor_bytes(const wd_tensor *t)
{
    return wd_dtype_size(t->dtype, wd_tensor_count(t));
}

/* A line of a model's tensor table: the name, shape and dtype that the model expects of one tensor.
 * The table determines sizing, loading, planning, projection to a student, checkpoints and
 * `inspect`. */
typedef struct wd_tensor_spec {
    char name[WD_TENSOR_NAME_MAX]; /* as in the diffusers checkpoint */
    int ndim;
    int64_t dim[WD_DIMS_MAX];
    int stage;     /* the unit of acquire and release that has it: see model/tables/dit_table.h */
    bool keep_f32; /* stays fp32 when the model is loaded in a narrower dtype */
    bool may_miss; /* a checkpoint may lack it (it has another name, or is not used) */
} wd_tensor_spec;

typedef struct wd_tensor_table {
    wd_tensor_spec *spec; /* owned */
    int64_t count;
    int stages;
} wd_tensor_table;

#endif
