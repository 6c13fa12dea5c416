/* Plans of cuDNN, made once per shape: for attention.c and conv.c, which say by a wd_cudnn_kind
 * what a shape is.
 *
 * Engine and settings follow from the same shape with one sample, so that a sample's bits do not
 * depend on how many others are in a launch: the first that the heuristic names for it, that is
 * wanted, and that can be planned. This choice is kept, and all numbers of samples share it. Making
 * a plan takes up to a second, asking the heuristic does not; so the plan of one sample is made
 * only where one sample is launched, or where the plan of many is refused: then samples are
 * launched one by one.
 *
 * Where cuDNN refuses all engines, a kind may have another form of the graph that does the same.
 * Where that is refused, too, the caller's own kernel computes the shape, for all numbers of
 * samples and all launches, and a warning says so. Failures that may be temporary are errors: a
 * later launch by cuDNN would have other bits.
 *
 * Functions may be called by several threads at once.
 */
#ifndef WD_DEV_CUDA_CUDNN_SHAPES_H
#define WD_DEV_CUDA_CUDNN_SHAPES_H

#include <pthread.h>

#include "dev/cuda/cudnn_graph.h"

enum { WD_CUDNN_KEY_MAX = 192, WD_CUDNN_TEXT_MAX = 160 };

/* A kind of operations. Keys are structs without padding that are compared as bytes. */
typedef struct wd_cudnn_kind {
    size_t key_bytes;
    void (*draw)(wd_cudnn_graph *graph, const void *key); /* in an open, empty graph */
    void (*take_one)(void *key);                          /* it becomes the key of one sample */
    /* The key becomes that of the other form; false: it has none. NULL: none has. */
    bool (*take_other_form)(void *key);
    unsigned (*notes_refused)(const void *key); /* see wd__cudnn_candidates */
    int64_t (*workspace_max)(const void *key);  /* bytes */
    /* "attention, 1 x 12 heads of 128, 1560 x 512" */
    void (*name)(char out[WD_CUDNN_TEXT_MAX], const void *key);
} wd_cudnn_kind;

typedef struct wd_cudnn_family wd_cudnn_family; /* a shape with any number of samples */

typedef struct wd_cudnn_planned {
    wd_cudnn_family *family;
    _Alignas(8) char key[WD_CUDNN_KEY_MAX];     /* as it was asked for */
    _Alignas(8) char planned[WD_CUDNN_KEY_MAX]; /* as it is planned: maybe of one sample, or in the
                                                 * other form */
    wd_cudnn_plan plan;
    double plan_ms; /* what asking and planning took */
} wd_cudnn_planned;

typedef struct wd_cudnn_shapes {
    const wd_cudnn_kind *kind;
    const wd_cudnn_target *target; /* borrowed */
    pthread_mutex_t lock;          /* of all below, and of the target's handle, which has one stream
                                    * at a time */
    wd_cudnn_planned **shape;      /* in the order in which they were first asked for */
    wd_cudnn_family **family;
    int64_t shapes, families;
} wd_cudnn_shapes;

void wd__cudnn_shapes_open(wd_cudnn_shapes *out, const wd_cudnn_kind *kind,
                           const wd_cudnn_target *target);
void wd__cudnn_shapes_close(wd_cudnn_shapes *shapes);

/* The shape of `key`, planned; it lives as long as `shapes`. NULL: the caller's own kernel is to
 * compute it. */
wd_status wd__cudnn_shapes_find(const wd_cudnn_planned **out, wd_cudnn_shapes *shapes,
                                const void *key, wd_err *err);

/* Runs its plan on a stream, as wd__cudnn_plan_run does. *own: nothing was run, for cuDNN refused
 * the first launch of this shape: the caller's own kernel is to compute it, now and later. */
wd_status wd__cudnn_planned_run(bool *own, wd_cudnn_shapes *shapes, const wd_cudnn_planned *shape,
                                wd_cu_stream stream, int count, const int64_t *id,
                                void *const *address, void *workspace, wd_err *err);

/* Writes how shape number `i` is computed, such as "attention, 1 x 12 heads of 128, 1560 x 512:
 * engine 8, knobs 2=1 24=0, 256 bytes of workspace, planned in 812 ms". False: there are fewer. */
bool wd__cudnn_shapes_describe(wd_cudnn_shapes *shapes, int64_t i, char *out, size_t bytes);

#endif
