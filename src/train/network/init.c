/* First weights from the teacher.
 *
 * Every axis of every tensor belongs to a set of channels: the residual stream, the heads of one
 * attention, the feed-forward units of one block, the hidden units of the time and text embedders,
 * the projected text. A student of the teacher's width keeps every set whole. A narrower one keeps
 * the same part of a set wherever that set occurs:
 *
 *   stream   head-sized groups of neighbouring channels, by the norms of what writes and reads
 *            them in all chosen blocks; the time embedding shares them, as the head adds one to
 *            the other
 *   heads    whole, by the norms of their value rows and output columns
 *   units    by the norm of the row that makes them times that of the column that reads them
 *
 * Values are copied as they are. Measured on wan-tiny (velocity on 18 states of the low-noise
 * expert's trajectories, cosine with the teacher's; a random start has 0), all blocks: 4 of 5 heads
 * 0.53, 3 of 5 heads 0.36. Stream channels chosen one by one by the same norms are worse (0.48,
 * 0.24) than random ones (0.50, 0.35): the largest seem to need each other. Rescaling the norms'
 * weights for the dropped heads changed nothing (below 0.001), and fitting time_proj again to the
 * teacher's modulation made it worse (by 0.04), so neither is done. */
#include "train/network/init.h"

#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "dev/codec/values.h"
#include "train/network/config.h"

/* Sets of channels. */
typedef enum axis {
    ONE,    /* no set: a single row */
    ALL,    /* as many as there are, all kept: pixels of a patch, text width, ... */
    STREAM, /* D */
    TIME,   /* D: hidden units of the time embedder */
    TEXT,   /* D: hidden units of the text embedder */
    CTX,    /* D: the projected text */
    SELF,   /* D: heads of self-attention, of the block at hand */
    CROSS,  /* D: heads of cross-attention, of the block at hand */
    UNITS,  /* E: feed-forward units, of the block at hand */
    AXES
} axis;

/* A tensor as a matrix: `repeat` times the rows' set, by the columns' set. */
typedef struct role {
    axis rows, cols;
    int repeat;
} role;

static const role embed_roles[WD_DIT_EMBED_SLOTS] = {
    [WD_DIT_EMBED_PATCH_W] = {STREAM, ALL, 1},        [WD_DIT_EMBED_PATCH_B] = {ONE, STREAM, 1},
    [WD_DIT_EMBED_TIME1_W] = {TIME, ALL, 1},          [WD_DIT_EMBED_TIME1_B] = {ONE, TIME, 1},
    [WD_DIT_EMBED_TIME2_W] = {STREAM, TIME, 1},       [WD_DIT_EMBED_TIME2_B] = {ONE, STREAM, 1},
    [WD_DIT_EMBED_TIME_PROJ_W] = {STREAM, STREAM, 6}, [WD_DIT_EMBED_TIME_PROJ_B] = {ONE, STREAM, 6},
    [WD_DIT_EMBED_TEXT1_W] = {TEXT, ALL, 1},          [WD_DIT_EMBED_TEXT1_B] = {ONE, TEXT, 1},
    [WD_DIT_EMBED_TEXT2_W] = {CTX, TEXT, 1},          [WD_DIT_EMBED_TEXT2_B] = {ONE, CTX, 1},
};

static const role block_roles[WD_DIT_BLOCK_SLOTS] = {
    [WD_DIT_BLOCK_TABLE] = {ONE, STREAM, 6},       [WD_DIT_BLOCK_SELF_Q_W] = {SELF, STREAM, 1},
    [WD_DIT_BLOCK_SELF_K_W] = {SELF, STREAM, 1},   [WD_DIT_BLOCK_SELF_V_W] = {SELF, STREAM, 1},
    [WD_DIT_BLOCK_SELF_Q_B] = {ONE, SELF, 1},      [WD_DIT_BLOCK_SELF_K_B] = {ONE, SELF, 1},
    [WD_DIT_BLOCK_SELF_V_B] = {ONE, SELF, 1},      [WD_DIT_BLOCK_SELF_NORM_Q] = {ONE, SELF, 1},
    [WD_DIT_BLOCK_SELF_NORM_K] = {ONE, SELF, 1},   [WD_DIT_BLOCK_SELF_OUT_W] = {STREAM, SELF, 1},
    [WD_DIT_BLOCK_SELF_OUT_B] = {ONE, STREAM, 1},  [WD_DIT_BLOCK_NORM2_W] = {ONE, STREAM, 1},
    [WD_DIT_BLOCK_NORM2_B] = {ONE, STREAM, 1},     [WD_DIT_BLOCK_CROSS_Q_W] = {CROSS, STREAM, 1},
    [WD_DIT_BLOCK_CROSS_Q_B] = {ONE, CROSS, 1},    [WD_DIT_BLOCK_CROSS_K_W] = {CROSS, CTX, 1},
    [WD_DIT_BLOCK_CROSS_V_W] = {CROSS, CTX, 1},    [WD_DIT_BLOCK_CROSS_K_B] = {ONE, CROSS, 1},
    [WD_DIT_BLOCK_CROSS_V_B] = {ONE, CROSS, 1},    [WD_DIT_BLOCK_CROSS_NORM_Q] = {ONE, CROSS, 1},
    [WD_DIT_BLOCK_CROSS_NORM_K] = {ONE, CROSS, 1}, [WD_DIT_BLOCK_CROSS_OUT_W] = {STREAM, CROSS, 1},
    [WD_DIT_BLOCK_CROSS_OUT_B] = {ONE, STREAM, 1}, [WD_DIT_BLOCK_FFN1_W] = {UNITS, STREAM, 1},
    [WD_DIT_BLOCK_FFN1_B] = {ONE, UNITS, 1},       [WD_DIT_BLOCK_FFN2_W] = {STREAM, UNITS, 1},
    [WD_DIT_BLOCK_FFN2_B] = {ONE, STREAM, 1},
};

static const role head_roles[WD_DIT_HEAD_SLOTS] = {
    [WD_DIT_HEAD_TABLE] = {ONE, STREAM, 2},
    [WD_DIT_HEAD_PROJ_W] = {ALL, STREAM, 1},
    [WD_DIT_HEAD_PROJ_B] = {ONE, ALL, 1},
};

enum { STAGING_FLOATS = 1 << 18 };

/* Everything that the transfer needs to know. */
typedef struct transfer {
    wd_params *params;
    const wd_dit_config *from, *to; /* teacher, student */
    const wd_safetensors *set;
    wd_tensor_table table; /* the teacher's */
    int64_t *keep[AXES];   /* [size in the student] the teacher's channel of each; NULL: all */
    double *weight;        /* [4, largest axis] norms, by channel */
    float *row;            /* [longest row of the teacher] */
    float *staging;        /* [STAGING_FLOATS or the longest row of the student] */
    wd_queue *queue;
} transfer;

static int64_t extent(const wd_dit_config *c, axis a)
{
    switch (a) {
    case ONE:
        return 1;
    case ALL:
        return 0;
    case UNITS:
        return c->ffn_dim;
    default:
        return wd_dit_width(c);
    }
}

static const role *role_of(const wd_dit_config *c, int stage, int slot)
{
    if (stage == 0) return &embed_roles[slot];
    return stage == wd_dit_stages(c) - 1 ? &head_roles[slot] : &block_roles[slot];
}

/* A teacher is read for a minute where its files are on a slow disk. */
static wd_status check_stop(wd_err *err)
{
    if (!wd_stop_requested()) return WD_OK;
    return wd_fail(err, WD_INTERRUPTED, "stopped on request before the student had its weights");
}

static wd_status teacher_tensor(wd_tensor *out, const transfer *t, int stage, int slot, wd_err *err)
{
    int64_t line = wd_dit_stage_first(t->from, stage) + slot;
    return wd_safetensors_expect(out, t->set, &t->table.spec[line], err);
}

/* ---- importance ---- */

/* by_row[r], by_col[c] += sum of squares; either may be NULL. */
static wd_status add_norms(double *by_row, double *by_col, transfer *t, int stage, int slot,
                           wd_err *err)
{
    wd_tensor tensor;
    WD_TRY(teacher_tensor(&tensor, t, stage, slot, err));
    int64_t rows = tensor.dim[0], cols = wd_tensor_count(&tensor) / rows;
    for (int64_t r = 0; r < rows; r++) {
        WD_TRY(check_stop(err));
        wd_tensor_values(t->row, &tensor, r * cols, cols);
        double sum = 0;
        for (int64_t c = 0; c < cols; c++) {
            double square = (double)t->row[c] * (double)t->row[c];
            sum += square;
            if (by_col) by_col[c] += square;
        }
        if (by_row) by_row[r] += sum;
    }
    return WD_OK;
}

/* Keeps of `a` the groups of `group` channels that matter most, in their order: by what makes a
 * group times what reads it. `made` is written over. */
static void keep_largest(transfer *t, axis a, double *made, const double *read, int64_t group)
{
    int64_t groups = extent(t->from, a) / group, kept = extent(t->to, a) / group;
    double *score = made;
    for (int64_t g = 0; g < groups; g++) {
        double sum_made = 0, sum_read = 0;
        for (int64_t i = 0; i < group; i++) {
            sum_made += made[g * group + i];
            sum_read += read[g * group + i];
        }
        score[g] = sum_made * sum_read;
        if (!(score[g] >= 0)) score[g] = 0; /* not a number: the order below needs one */
    }
    /* A group stays if fewer than `kept` others are larger, or as large and before it. */
    int64_t n = 0;
    for (int64_t g = 0; g < groups; g++) {
        int64_t before = 0;
        for (int64_t i = 0; i < groups; i++) {
            before += score[i] > score[g] || (score[i] == score[g] && i < g);
        }
        if (before >= kept) continue;
        for (int64_t i = 0; i < group; i++) t->keep[a][n++] = g * group + i;
    }
    WD_REQUIRE(n == extent(t->to, a), "%" PRId64 " of %" PRId64 " places of the student are filled",
               n, extent(t->to, a));
}

/* Norms number `i`, zeroed. */
static double *norms(transfer *t, int i)
{
    int64_t d = wd_dit_width(t->from), e = t->from->ffn_dim, n = d > e ? d : e;
    memset(t->weight + i * n, 0, (size_t)n * sizeof(double));
    return t->weight + i * n;
}

/* A hidden layer: made by the rows of `in`, read by the columns of `out`. */
static wd_status choose_hidden(transfer *t, axis a, int stage, int in, int out, int64_t group,
                               wd_err *err)
{
    if (!t->keep[a]) return WD_OK;
    double *made = norms(t, 0), *read = norms(t, 1);
    WD_TRY(add_norms(made, NULL, t, stage, in, err));
    WD_TRY(add_norms(NULL, read, t, stage, out, err));
    keep_largest(t, a, made, read, group);
    return WD_OK;
}

/* The sets that all blocks share. */
static wd_status choose_shared(transfer *t, const int64_t *block, wd_err *err)
{
    if (!t->keep[STREAM]) return WD_OK;
    static const int writers[] = {WD_DIT_BLOCK_SELF_OUT_W, WD_DIT_BLOCK_CROSS_OUT_W,
                                  WD_DIT_BLOCK_FFN2_W};
    static const int readers[] = {WD_DIT_BLOCK_SELF_Q_W, WD_DIT_BLOCK_SELF_K_W,
                                  WD_DIT_BLOCK_SELF_V_W, WD_DIT_BLOCK_CROSS_Q_W,
                                  WD_DIT_BLOCK_FFN1_W};
    int head = wd_dit_stages(t->from) - 1;
    WD_TRY(choose_hidden(t, TIME, 0, WD_DIT_EMBED_TIME1_W, WD_DIT_EMBED_TIME2_W, 1, err));
    WD_TRY(choose_hidden(t, TEXT, 0, WD_DIT_EMBED_TEXT1_W, WD_DIT_EMBED_TEXT2_W, 1, err));
    double *written = norms(t, 0), *read = norms(t, 1);
    double *ctx_made = norms(t, 2), *ctx_read = norms(t, 3);
    WD_TRY(add_norms(written, NULL, t, 0, WD_DIT_EMBED_PATCH_W, err));
    WD_TRY(add_norms(NULL, read, t, head, WD_DIT_HEAD_PROJ_W, err));
    WD_TRY(add_norms(ctx_made, NULL, t, 0, WD_DIT_EMBED_TEXT2_W, err));
    for (int64_t i = 0; i < t->to->layers; i++) {
        int stage = 1 + (int)block[i];
        for (size_t w = 0; w < sizeof writers / sizeof *writers; w++) {
            WD_TRY(add_norms(written, NULL, t, stage, writers[w], err));
        }
        for (size_t r = 0; r < sizeof readers / sizeof *readers; r++) {
            WD_TRY(add_norms(NULL, read, t, stage, readers[r], err));
        }
        WD_TRY(add_norms(NULL, ctx_read, t, stage, WD_DIT_BLOCK_CROSS_K_W, err));
        WD_TRY(add_norms(NULL, ctx_read, t, stage, WD_DIT_BLOCK_CROSS_V_W, err));
    }
    keep_largest(t, STREAM, written, read, t->from->head_dim);
    keep_largest(t, CTX, ctx_made, ctx_read, 1);
    return WD_OK;
}

/* Heads and units of one of the teacher's blocks. */
static wd_status choose_in_block(transfer *t, int stage, wd_err *err)
{
    int64_t head = t->from->head_dim;
    WD_TRY(
        choose_hidden(t, SELF, stage, WD_DIT_BLOCK_SELF_V_W, WD_DIT_BLOCK_SELF_OUT_W, head, err));
    WD_TRY(choose_hidden(t, CROSS, stage, WD_DIT_BLOCK_CROSS_V_W, WD_DIT_BLOCK_CROSS_OUT_W, head,
                         err));
    return choose_hidden(t, UNITS, stage, WD_DIT_BLOCK_FFN1_W, WD_DIT_BLOCK_FFN2_W, 1, err);
}

/* ---- copying ---- */

/* Gathers a tensor's kept rows and columns into the staging memory, piece by piece, and from there
 * into `p`. */
static wd_status copy_tensor(transfer *t, int to_stage, int from_stage, int slot, wd_err *err)
{
    const role *is = role_of(t->from, from_stage, slot);
    int64_t line = wd_dit_stage_first(t->to, to_stage) + slot;
    wd_tensor to = wd_params_whole_tensor(t->params, WD_PARAMS_P, line), from;
    int64_t to_count = wd_tensor_count(&to);
    if (!to_count) return WD_OK;
    WD_TRY(teacher_tensor(&from, t, from_stage, slot, err));

    int64_t from_count = wd_tensor_count(&from);
    int64_t from_set = extent(t->from, is->rows), to_set = extent(t->to, is->rows);
    int64_t to_cols =
        is->cols == ALL ? from_count / (from_set * is->repeat) : extent(t->to, is->cols);
    int64_t from_cols = is->cols == ALL ? to_cols : extent(t->from, is->cols);
    if (is->rows == ALL) from_set = to_set = from_count / from_cols;
    int64_t rows = to_set * is->repeat;
    WD_REQUIRE(rows * to_cols == to_count && from_set * is->repeat * from_cols == from_count,
               "a tensor of %" PRId64 " elements is to be made of one of %" PRId64, to_count,
               from_count);

    const int64_t *keep_row = t->keep[is->rows], *keep_col = t->keep[is->cols];
    int64_t piece = STAGING_FLOATS / to_cols > 0 ? STAGING_FLOATS / to_cols : 1;
    for (int64_t first = 0; first < rows; first += piece) {
        int64_t end = first + piece < rows ? first + piece : rows;
        WD_TRY(check_stop(err));
        for (int64_t r = first; r < end; r++) {
            int64_t in_set = keep_row ? keep_row[r % to_set] : r % to_set;
            float *out = t->staging + (r - first) * to_cols;
            const int64_t row = r / to_set * from_set + in_set;
            wd_tensor_values(t->row, &from, row * from_cols, from_cols);
            for (int64_t c = 0; c < to_cols; c++) out[c] = t->row[keep_col ? keep_col[c] : c];
        }
        wd_queue_copy_and_wait(t->queue, (float *)to.data + first * to_cols, t->staging,
                               (size_t)((end - first) * to_cols) * sizeof(float));
    }
    return WD_OK;
}

static wd_status copy_stage(transfer *t, int to_stage, int from_stage, wd_err *err)
{
    int slots = wd_dit_stage_slots(t->to, to_stage);
    for (int slot = 0; slot < slots; slot++) {
        WD_TRY(copy_tensor(t, to_stage, from_stage, slot, err));
    }
    return WD_OK;
}

/* ---- the whole ---- */

void wd__student_choose_blocks(int64_t *block, int64_t layers, int64_t teacher_layers)
{
    WD_REQUIRE(layers >= 1 && layers <= teacher_layers,
               "a student of %" PRId64 " blocks, a teacher of %" PRId64, layers, teacher_layers);
    if (layers == 1) {
        block[0] = 0;
        return;
    }
    /* i (T - 1) / (L - 1), a half rounded down: 6 -> 3 gives 0, 2, 5. */
    for (int64_t i = 0; i < layers; i++) {
        block[i] = (2 * i * (teacher_layers - 1) + layers - 2) / (2 * (layers - 1));
    }
}

wd_component wd_student_expert(const wd_pipeline *teacher)
{
    return teacher->has[WD_COMPONENT_TRANSFORMER_2] && teacher->boundary_ratio > 0
               ? WD_COMPONENT_TRANSFORMER_2
               : WD_COMPONENT_TRANSFORMER;
}

static wd_status allocate(transfer *t, wd_err *err)
{
    int64_t width = wd_dit_width(t->from), widest = t->from->ffn_dim;
    if (widest < width) widest = width;
    for (int a = STREAM; a < AXES; a++) {
        int64_t n = extent(t->to, (axis)a);
        if (n == extent(t->from, (axis)a)) continue;
        WD_TRY(wd_alloc((void **)&t->keep[a], (size_t)n, sizeof(int64_t), "chosen channels", err));
    }
    WD_TRY(
        wd_alloc((void **)&t->weight, (size_t)(4 * widest), sizeof(double), "channel norms", err));
    int64_t longest = widest;
    for (int64_t i = 0; i < t->table.count; i++) {
        const wd_tensor_spec *s = &t->table.spec[i];
        int64_t cols = 1;
        for (int d = 1; d < s->ndim; d++) cols *= s->dim[d];
        if (cols > longest) longest = cols;
    }
    WD_TRY(wd_alloc((void **)&t->row, (size_t)longest, sizeof(float), "a row of weights", err));
    if (longest < STAGING_FLOATS) longest = STAGING_FLOATS;
    return wd_alloc((void **)&t->staging, (size_t)longest, sizeof(float), "staging memory", err);
}

static wd_status copy_all(transfer *t, const int64_t *chosen, wd_err *err)
{
    WD_TRY(choose_shared(t, chosen, err));
    WD_TRY(copy_stage(t, 0, 0, err));
    for (int64_t i = 0; i < t->to->layers; i++) {
        int from_stage = 1 + (int)chosen[i];
        WD_TRY(choose_in_block(t, from_stage, err));
        WD_TRY(copy_stage(t, 1 + (int)i, from_stage, err));
    }
    return copy_stage(t, wd_dit_stages(t->to) - 1, wd_dit_stages(t->from) - 1, err);
}

wd_status wd_student_init_from(wd_params *params, const wd_pipeline *teacher, wd_component expert,
                               const int64_t *block, wd_queue *queue, wd_err *err)
{
    const wd_dit_config *to = &params->config;
    transfer t = {.params = params, .from = &teacher->dit, .to = to, .queue = queue};
    wd_safetensors *set = NULL;
    int64_t *chosen = NULL;
    wd_status status = WD_OK;
    WD_TRY_OUT(wd_student_config_check(to, &teacher->dit, err));
    WD_TRY_OUT(
        wd_alloc((void **)&chosen, (size_t)to->layers, sizeof *chosen, "chosen blocks", err));
    if (block)
        memcpy(chosen, block, (size_t)to->layers * sizeof *chosen);
    else
        wd__student_choose_blocks(chosen, to->layers, teacher->dit.layers);
    WD_TRY_OUT(wd_pipeline_open_weights(&set, teacher, expert, err));
    t.set = set;
    WD_TRY_OUT(wd_dit_table_open(&t.table, t.from, err));
    WD_TRY_OUT(allocate(&t, err));
    wd_params_clear_whole(params, WD_PARAMS_P, queue);
    status = copy_all(&t, chosen, err);
    if (status != WD_OK && status != WD_INTERRUPTED) goto out;
    wd_params_take(params, WD_PARAMS_P, queue);
    wd_params_show(params, WD_PARAMS_P, queue);
    wd_queue_wait(queue);
out:
    for (int a = 0; a < AXES; a++) wd_free(t.keep[a]);
    wd_free(t.weight);
    wd_free(t.row);
    wd_free(t.staging);
    wd_dit_table_close(&t.table);
    wd_safetensors_close(set);
    wd_free(chosen);
    return status;
}

wd_status wd_student_init(wd_params *params, const wd_pipeline *teacher, wd_component expert,
                          wd_queue *queue, wd_err *err)
{
    return wd_student_init_from(params, teacher, expert, NULL, queue, err);
}

void wd_student_say_blocks(const wd_dit_config *student, const wd_pipeline *from,
                           const int64_t *block)
{
    char text[256] = "";
    size_t used = 0;
    int64_t *even;
    if (wd_alloc((void **)&even, (size_t)student->layers, sizeof *even, "blocks", NULL)) return;
    wd__student_choose_blocks(even, student->layers, from->dit.layers);
    for (int64_t i = 0; i < student->layers; i++)
        used = wd_append_text(text, sizeof text, used, "%s%lld", i ? ", " : "",
                              (long long)(block ? block[i] : even[i]));
    wd_log(WD_LOG_INFO, "the student starts from blocks %s of %s/%s", text, from->path,
           wd_component_name(wd_student_expert(from)));
    wd_free(even);
}
