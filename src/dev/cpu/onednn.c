/* oneDNN primitives: see cpu/onednn.h. */
#include "dev/cpu/onednn.h"

#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "core/checked.h"
#include "core/memory.h"

enum {
    KEY_MAX = 256,
    BUCKETS = 1024,
    ALIGN = 64,
    SPARE = 16 << 20 /* bytes that must be free before a primitive is made: see has_memory */
};

/* Ends the process on failure, which is a bug in this library or a failed allocation, since a
 * launch cannot report either. */
static void check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return;
    fprintf(stderr, "wandistiller: oneDNN: %s: status %d\n", what, (int)status);
    abort();
}

/* oneDNN reads dimensions through arrays of its own length. */
static void dims_copy(dnnl_dims_t out, const int64_t *dim, int ndim)
{
    for (int i = 0; i < DNNL_MAX_NDIMS; i++) out[i] = i < ndim ? dim[i] : 0;
}

/* ---- the versions' differences ---- */

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t layout;
typedef const_dnnl_memory_desc_t layout_view;

static void layout_make(layout *out, int ndim, const int64_t *dim, dnnl_data_type_t type,
                        const int64_t *stride)
{
    dnnl_dims_t dims, strides;
    dims_copy(dims, dim, ndim);
    if (stride) dims_copy(strides, stride, ndim);
    check(stride ? dnnl_memory_desc_create_with_strides(out, ndim, dims, type, strides)
                 : dnnl_memory_desc_create_with_tag(out, ndim, dims, type, dnnl_format_tag_any),
          "a layout");
}
static void layout_free(layout *l)
{
    dnnl_memory_desc_destroy(*l);
}
static layout_view view_of(const layout *l)
{
    return *l;
}
static size_t layout_bytes(layout_view l)
{
    return dnnl_memory_desc_get_size(l);
}

static dnnl_status_t product_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const layout *a,
                                  const layout *b, const layout *bias, const layout *c,
                                  dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(out, engine, *a, *b, bias ? *bias : NULL, *c, attr);
}

static dnnl_status_t conv_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const layout *x,
                               const layout *w, const layout *bias, const layout *y,
                               const int64_t *stride, const int64_t *before, const int64_t *after,
                               dnnl_primitive_attr_t attr)
{
    const dnnl_dims_t dilation = {0};
    return dnnl_convolution_forward_primitive_desc_create(
        out, engine, dnnl_forward_inference, dnnl_convolution_direct, *x, *w, bias ? *bias : NULL,
        *y, stride, dilation, before, after, attr);
}

static void append_sum(dnnl_post_ops_t ops)
{
    check(dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef), "sum");
}
static void append_gelu(dnnl_post_ops_t ops)
{
    check(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_gelu_tanh, 0, 0), "gelu");
}
#else
typedef dnnl_memory_desc_t layout;
typedef const dnnl_memory_desc_t *layout_view;

static void layout_make(layout *out, int ndim, const int64_t *dim, dnnl_data_type_t type,
                        const int64_t *stride)
{
    dnnl_dims_t dims, strides;
    dims_copy(dims, dim, ndim);
    if (stride) dims_copy(strides, stride, ndim);
    check(stride ? dnnl_memory_desc_init_by_strides(out, ndim, dims, type, strides)
                 : dnnl_memory_desc_init_by_tag(out, ndim, dims, type, dnnl_format_tag_any),
          "a layout");
}
static void layout_free(layout *l)
{
    (void)l;
}
static layout_view view_of(const layout *l)
{
    return l;
}
static size_t layout_bytes(layout_view l)
{
    return dnnl_memory_desc_get_size(l);
}

static dnnl_status_t product_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const layout *a,
                                  const layout *b, const layout *bias, const layout *c,
                                  dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, a, b, bias, c);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
}

static dnnl_status_t conv_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const layout *x,
                               const layout *w, const layout *bias, const layout *y,
                               const int64_t *stride, const int64_t *before, const int64_t *after,
                               dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status =
        dnnl_convolution_forward_desc_init(&desc, dnnl_forward_inference, dnnl_convolution_direct,
                                           x, w, bias, y, stride, before, after);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
}

static void append_sum(dnnl_post_ops_t ops)
{
    check(dnnl_post_ops_append_sum(ops, 1), "sum");
}
static void append_gelu(dnnl_post_ops_t ops)
{
    check(dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_gelu_tanh, 0, 0), "gelu");
}
#endif

/* Whether oneDNN uses one of its newer kernels ("brg:"). For odd strides or sizes it uses an older
 * one, which divides sums among threads (seen in 2.6 with 8 threads and sums of 384 terms, and
 * in 3.2). */
static bool is_exact(const_dnnl_primitive_desc_t desc)
{
    const char *kernel = "";
    check(dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &kernel), "a kernel's name");
    return strncmp(kernel, "gemm", 4) != 0;
}

/* ---- one engine, one stream, one cache ---- */

/* A primitive with the memory objects that its runs set addresses in. */
typedef struct work {
    dnnl_primitive_t primitive;
    dnnl_memory_t arg[4], scratch; /* a b bias c, or x w bias y */
    size_t scratch_bytes;
} work;

typedef struct entry {
    struct entry *next;
    unsigned char key[KEY_MAX];
    size_t key_bytes;
    pthread_mutex_t lock; /* of the memory objects' addresses */
    work main, pack;      /* pack: the packing of a convolution's weights */
    size_t packed_bytes;
    bool exact; /* wd__onednn_product_is_exact */
} entry;

static struct {
    pthread_mutex_t lock;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    entry *bucket[BUCKETS];
} onednn = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Whether this thread has asked for an entry for which there was no memory. A plan asks and reads
 * this in one thread; ranks that are threads plan at the same time. */
static _Thread_local bool missed;

void wd__onednn_limit_isa(wd_cpu_isa isa)
{
#if defined(__x86_64__)
    static const dnnl_cpu_isa_t isas[WD_CPU_ISA_COUNT] = {
        [WD_CPU_ISA_generic] = dnnl_cpu_isa_sse41,
        [WD_CPU_ISA_avx2] = dnnl_cpu_isa_avx2,
        [WD_CPU_ISA_avx512] = dnnl_cpu_isa_avx512_core,
        [WD_CPU_ISA_avx512_bf16] = dnnl_cpu_isa_avx512_core_bf16,
        [WD_CPU_ISA_amx] = dnnl_cpu_isa_avx512_core_bf16,
    };
    /* fails once oneDNN is in use: then the same limit was set before, or WD_CPU_ISA has changed */
    (void)dnnl_set_max_cpu_isa(isas[isa]);
#else
    (void)isa;
#endif
}

void wd__onednn_version(char out[32])
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, 32, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

static dnnl_data_type_t type_of(int64_t dtype)
{
    return dtype == WD_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_primitive_attr_t attributes(bool add, bool gelu)
{
    dnnl_primitive_attr_t attr;
    check(dnnl_primitive_attr_create(&attr), "attributes");
    check(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "scratchpad");
    if (!add && !gelu) return attr;
    dnnl_post_ops_t ops;
    check(dnnl_post_ops_create(&ops), "post-ops");
    if (gelu) append_gelu(ops);
    if (add) append_sum(ops);
    check(dnnl_primitive_attr_set_post_ops(attr, ops), "post-ops");
    dnnl_post_ops_destroy(ops);
    return attr;
}

static dnnl_memory_t memory_of(layout_view l)
{
    dnnl_memory_t memory;
    check(dnnl_memory_create(&memory, l, onednn.engine, DNNL_MEMORY_NONE), "a memory object");
    return memory;
}

/* Makes the primitive, and frees the descriptor. */
static void finish_work(work *w, dnnl_primitive_desc_t desc, dnnl_primitive_attr_t attr)
{
    layout_view scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    w->scratch = memory_of(scratch);
    w->scratch_bytes = wd_round_up(layout_bytes(scratch), ALIGN);
    check(dnnl_primitive_create(&w->primitive, desc), "a primitive");
    dnnl_primitive_desc_destroy(desc);
    dnnl_primitive_attr_destroy(attr);
}

static void make_product(entry *e, const wd_onednn_product *p)
{
    const int64_t da[2] = {p->m, p->k}, db[2] = {p->k, p->n}, dc[2] = {p->m, p->n};
    const int64_t d1[2] = {1, p->n}, s1[2] = {p->n, 1}, sc[2] = {p->ldc, 1};
    const int64_t sa[2] = {p->transpose_a ? 1 : p->lda, p->transpose_a ? p->lda : 1};
    const int64_t sb[2] = {p->transpose_b ? 1 : p->ldb, p->transpose_b ? p->ldb : 1};
    layout a, b, c, bias;
    bool has_bias = p->bias_type >= 0;
    layout_make(&a, 2, da, type_of(p->type), sa);
    layout_make(&b, 2, db, type_of(p->type), sb);
    layout_make(&c, 2, dc, type_of(p->c_type), sc);
    layout_make(&bias, 2, d1, type_of(p->bias_type), s1);
    dnnl_primitive_attr_t attr = attributes(p->add, p->gelu);
    dnnl_primitive_desc_t desc;
    check(product_desc(&desc, onednn.engine, &a, &b, has_bias ? &bias : NULL, &c, attr),
          "a matrix product");
    e->main.arg[0] = memory_of(view_of(&a));
    e->main.arg[1] = memory_of(view_of(&b));
    e->main.arg[2] = has_bias ? memory_of(view_of(&bias)) : NULL;
    e->main.arg[3] = memory_of(view_of(&c));
    e->exact = is_exact(desc);
    finish_work(&e->main, desc, attr);
    layout_free(&a), layout_free(&b), layout_free(&c), layout_free(&bias);
}

/* Layout of channels-last data [N, F, H, W, C] in oneDNN's order N C (F) H W. */
static void layout_last(layout *out, int axes, int64_t samples, const int64_t *extent, int64_t c)
{
    int64_t dim[5] = {samples, c}, stride[5], step = c;
    stride[1] = 1;
    for (int i = axes - 1; i >= 0; i--) {
        dim[2 + i] = extent[i];
        stride[2 + i] = step;
        step *= extent[i];
    }
    stride[0] = step;
    layout_make(out, 2 + axes, dim, dnnl_f32, stride);
}

/* With one tap, frames are pictures of their own: two axes instead of three. */
static void make_conv(entry *e, const wd_onednn_conv *c)
{
    int axes = c->taps == 1 ? 2 : 3, from = 3 - axes;
    int64_t samples = c->taps == 1 ? c->samples * c->in[0] : c->samples;
    int64_t dim[5] = {c->co, c->ci, c->taps, c->kernel[1], c->kernel[2]};
    int64_t area = c->kernel[1] * c->kernel[2], volume = c->kernel[0] * area;
    int64_t stride[5] = {c->ci * volume, volume, area, c->kernel[2], 1};
    if (axes == 2)
        for (int i = 2; i < 4; i++) dim[i] = dim[i + 1], stride[i] = stride[i + 1];
    const int64_t one = 1;
    layout x, y, w, packed, bias;
    layout_last(&x, axes, samples, c->in + from, c->ci);
    layout_last(&y, axes, samples, c->out + from, c->co);
    layout_make(&w, 2 + axes, dim, dnnl_f32, stride);
    layout_make(&packed, 2 + axes, dim, dnnl_f32, NULL);
    layout_make(&bias, 1, &c->co, dnnl_f32, &one);
    dnnl_primitive_attr_t attr = attributes(false, false), pack_attr = attributes(false, false);
    dnnl_primitive_desc_t desc, pack_desc;
    dnnl_dims_t step, before, after;
    dims_copy(step, c->stride + from, axes);
    dims_copy(before, c->pad_before + from, axes);
    dims_copy(after, c->pad_after + from, axes);
    check(conv_desc(&desc, onednn.engine, &x, &packed, c->has_bias ? &bias : NULL, &y, step, before,
                    after, attr),
          "a convolution");
    layout_view chosen = dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
    check(dnnl_reorder_primitive_desc_create(&pack_desc, view_of(&w), onednn.engine, chosen,
                                             onednn.engine, pack_attr),
          "a packing of weights");
    e->packed_bytes = wd_round_up(layout_bytes(chosen), ALIGN);
    e->main.arg[0] = memory_of(view_of(&x));
    e->main.arg[1] = memory_of(chosen);
    e->main.arg[2] = c->has_bias ? memory_of(view_of(&bias)) : NULL;
    e->main.arg[3] = memory_of(view_of(&y));
    e->pack.arg[0] = memory_of(view_of(&w));
    finish_work(&e->main, desc, attr);
    finish_work(&e->pack, pack_desc, pack_attr);
    layout_free(&x), layout_free(&y), layout_free(&w), layout_free(&packed), layout_free(&bias);
}

/* Whether there is memory to make a primitive. oneDNN (2.6) does not check the allocation of a
 * kernel's code, about 250 kB each, before writing to it. Allocations fail if the address space or
 * the data of a process is limited; so this first tries to map far more. */
static bool has_memory(void)
{
    void *block = mmap(NULL, SPARE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return false;
    munmap(block, SPARE);
    return true;
}

/* Makes an entry by one of the functions above, whose keys have different lengths. */
static entry *make(const void *key, size_t bytes)
{
    _Static_assert(sizeof(wd_onednn_product) <= KEY_MAX && sizeof(wd_onednn_conv) <= KEY_MAX &&
                       sizeof(wd_onednn_product) != sizeof(wd_onednn_conv),
                   "keys");
    if (!onednn.engine) {
        check(dnnl_engine_create(&onednn.engine, dnnl_cpu, 0), "an engine");
        check(dnnl_stream_create(&onednn.stream, onednn.engine, dnnl_stream_default_flags),
              "a stream");
    }
    entry *e = calloc(1, sizeof *e); /* kept until the process ends, so not counted for a run */
    if (!e) check(dnnl_out_of_memory, "a primitive");
    memcpy(e->key, key, bytes);
    e->key_bytes = bytes;
    pthread_mutex_init(&e->lock, NULL);
    if (bytes == sizeof(wd_onednn_product)) {
        make_product(e, key);
    } else {
        make_conv(e, key);
    }
    return e;
}

/* Finds or makes the entry of `key`; NULL: there is no memory for a new one. */
static entry *find_or_miss(const void *key, size_t bytes)
{
    pthread_mutex_lock(&onednn.lock);
    entry **at = &onednn.bucket[XXH3_64bits(key, bytes) % BUCKETS];
    while (*at && ((*at)->key_bytes != bytes || memcmp((*at)->key, key, bytes))) at = &(*at)->next;
    if (!*at && has_memory())
        *at = make(key, bytes);
    else if (!*at)
        missed = true;
    entry *found = *at;
    pthread_mutex_unlock(&onednn.lock);
    return found;
}

static wd_status refuse(wd_err *err)
{
    return wd_fail(
        err, WD_OUT_OF_MEMORY,
        "no memory for kernels: the system refuses %d MiB to make one in; is the address "
        "space limited (ulimit -v, ulimit -d)?",
        SPARE >> 20);
}

wd_status wd__onednn_take_miss(wd_err *err)
{
    const bool has_missed = missed;
    missed = false;
    return has_missed ? refuse(err) : WD_OK;
}

/* Finds the entry for a launch; ends the process if there is no memory. */
static entry *find(const void *key, size_t bytes)
{
    wd_err err;
    entry *found = find_or_miss(key, bytes);
    if (found) return found;
    (void)refuse(&err);
    fprintf(stderr, "wandistiller: %s\n", err.message);
    abort();
}

static void run(work *w, const dnnl_exec_arg_t *args, int count)
{
    check(dnnl_primitive_execute(w->primitive, onednn.stream, count, args), "a run");
    check(dnnl_stream_wait(onednn.stream), "a run");
}

static void point(dnnl_memory_t memory, const void *at)
{
    check(dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)at), "an address");
}

bool wd__onednn_product_is_exact(const wd_onednn_product *product)
{
    const entry *e = find_or_miss(product, sizeof *product);
    return e && e->exact;
}

size_t wd__onednn_product_scratch(const wd_onednn_product *product)
{
    const entry *e = find_or_miss(product, sizeof *product);
    return e ? e->main.scratch_bytes : 0;
}

void wd__onednn_product_run(void *c, const void *a, const void *b, const void *bias,
                            const wd_onednn_product *product, void *scratch)
{
    entry *e = find(product, sizeof *product);
    work *w = &e->main;
    pthread_mutex_lock(&e->lock);
    point(w->arg[0], a);
    point(w->arg[1], b);
    if (bias) point(w->arg[2], bias);
    point(w->arg[3], c);
    point(w->scratch, scratch);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, w->arg[0]},
                                    {DNNL_ARG_WEIGHTS, w->arg[1]},
                                    {DNNL_ARG_DST, w->arg[3]},
                                    {DNNL_ARG_SCRATCHPAD, w->scratch},
                                    {DNNL_ARG_BIAS, w->arg[2]}};
    run(w, args, bias ? 5 : 4);
    pthread_mutex_unlock(&e->lock);
}

/* Scratch: the packed weights, and the larger scratch of the two primitives. */
size_t wd__onednn_conv_scratch(const wd_onednn_conv *conv)
{
    const entry *e = find_or_miss(conv, sizeof *conv);
    if (!e) return 0;
    size_t main = e->main.scratch_bytes, pack = e->pack.scratch_bytes;
    return e->packed_bytes + (main > pack ? main : pack);
}

void wd__onednn_conv_run(float *y, const float *x, const float *w, const float *bias,
                         const wd_onednn_conv *conv, void *scratch)
{
    entry *e = find(conv, sizeof *conv);
    char *packed = scratch, *rest = packed + e->packed_bytes;
    work *main = &e->main, *pack = &e->pack;
    pthread_mutex_lock(&e->lock);
    point(pack->arg[0], w);
    point(main->arg[1], packed);
    point(pack->scratch, rest);
    const dnnl_exec_arg_t packing[] = {{DNNL_ARG_FROM, pack->arg[0]},
                                       {DNNL_ARG_TO, main->arg[1]},
                                       {DNNL_ARG_SCRATCHPAD, pack->scratch}};
    run(pack, packing, 3);
    point(main->arg[0], x);
    if (bias) point(main->arg[2], bias);
    point(main->arg[3], y);
    point(main->scratch, rest);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, main->arg[0]},
                                    {DNNL_ARG_WEIGHTS, main->arg[1]},
                                    {DNNL_ARG_DST, main->arg[3]},
                                    {DNNL_ARG_SCRATCHPAD, main->scratch},
                                    {DNNL_ARG_BIAS, main->arg[2]}};
    run(main, args, bias ? 5 : 4);
    pthread_mutex_unlock(&e->lock);
}
