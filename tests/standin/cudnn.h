/* What the files of cuDNN's stand-in share. Private to tests/standin.
 *
 * cudnn.c: descriptors, which keep whatever attributes they are given; cudnn_program.c: the
 * operations of a graph, read from descriptors when a plan is finalized, or why they are refused;
 * cudnn_run.c: their numbers.
 */
#ifndef WD_TESTS_STANDIN_CUDNN_H
#define WD_TESTS_STANDIN_CUDNN_H

#include <stdbool.h>

#include "standin/libraries.h"

enum {
    WD_STANDIN_ATTRIBUTES = 16,
    WD_STANDIN_DIMS = 5,
    WD_STANDIN_TENSORS = 48,
    WD_STANDIN_OPS = 24,
    WD_STANDIN_ADDRESSES = 16
};

typedef struct wd_standin_attribute {
    wd_cudnn_attr name;
    wd_cudnn_type type;
    int64_t count;
    void *data;
} wd_standin_attribute;

typedef struct wd_standin_tensor {
    int64_t id;
    wd_cudnn_data type;
    int ndim;
    int64_t dim[WD_STANDIN_DIMS], stride[WD_STANDIN_DIMS], align;
    bool is_virtual, by_value;
} wd_standin_tensor;

/* y = op(x, b); indices of tensors, b -1: none. */
typedef struct wd_standin_op {
    wd_cudnn_backend kind; /* of the operation's descriptor */
    int mode;              /* of pointwise operations and reductions */
    int x, b, y;
    int axes; /* of convolutions */
    int64_t step[3], before[3], after[3];
} wd_standin_op;

/* A graph that can be run. */
typedef struct wd_standin_program {
    wd_standin_tensor tensor[WD_STANDIN_TENSORS];
    wd_standin_op op[WD_STANDIN_OPS];
    int tensors, ops;
    int64_t workspace_bytes;
} wd_standin_program;

typedef struct wd_standin_descriptor {
    uint64_t mark;
    wd_cudnn_backend kind;
    bool finalized;
    wd_standin_attribute attribute[WD_STANDIN_ATTRIBUTES];
    int attributes;
    wd_standin_program *program;             /* of a plan */
    struct wd_standin_descriptor *inside[2]; /* a configuration's engine and setting */
} wd_standin_descriptor;

/* An attribute of `type`, or NULL. */
const wd_standin_attribute *wd_standin_attribute_of(const wd_standin_descriptor *d,
                                                    wd_cudnn_attr name, wd_cudnn_type type);
/* The descriptor of `kind` that an attribute names, finalized; or NULL. */
const wd_standin_descriptor *wd_standin_descriptor_of(const wd_standin_descriptor *d,
                                                      wd_cudnn_attr name, wd_cudnn_backend kind);
/* A single whole number; false: there is none. */
bool wd_standin_number_of(int64_t *out, const wd_standin_descriptor *d, wd_cudnn_attr name,
                          wd_cudnn_type type);

/* The operations of a finalized graph. */
wd_cudnn_status wd_standin_program_read(wd_standin_program *out,
                                        const wd_standin_descriptor *graph);

/* A run: where the tensors of a program are. Found by number. */
typedef struct wd_standin_run_args {
    const wd_standin_program *program;
    int64_t id[WD_STANDIN_ADDRESSES];
    void *address[WD_STANDIN_ADDRESSES];
    float value[WD_STANDIN_ADDRESSES]; /* of those that are passed by value */
    int count;
    void *workspace;
} wd_standin_run_args;

/* Computes it; `argument` is a wd_standin_run_args. */
void wd_standin_program_run(const void *argument);

#endif
