/* Convolutions of 3x3 taps by Winograd's minimal filtering F(4x4, 3x3): a quarter of the direct
 * form's multiplications.
 *
 * A tile of 4x4 pixels of the result is computed from 6x6 pixels x of the input:
 *   y = At [ sum over channels of (G w Gt) * (Bt x B) ] A, with * element by element
 * (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). Seen over all tiles
 * and channels that is one matrix product for each of the 36 elements ("points"), which the inner
 * loop of isa/product.h makes:
 *
 *   weights -> G w Gt, in panels           once per launch, shared by all threads
 *   24 tiles of x -> Bt x B, as rows       per thread, in its second-level cache, as are
 *   36 products -> sums -> At .. A -> y
 *
 * Time taps are treated as further channels. An element of the result is always the same chain of
 * operations on its own tile, for every thread.
 *
 * The transformations evaluate polynomials at 0, 5/8, -5/8, 3/2, -3/2 and infinity, as in oneDNN:
 * the usual 0, 1, -1, 2, -2 have twice the error (a relative 1.8e-6 instead of 0.8e-6 with 96
 * channels; the direct form has 0.2e-6). */
#include <assert.h>

#include "dev/cpu/isa/isa.h"

#include "core/error.h"
#include "dev/cpu/isa/product.h"
#include "dev/cpu/winograd_plan.h"

enum { SIDE = WD_WINOGRAD_SIDE, WINDOW = WD_WINOGRAD_WINDOW, POINTS = WD_WINOGRAD_POINTS };

/* The points, their powers, and the divisors of the weights; all but the divisors are exact. */
#define P 0.625f
#define Q 1.5f
#define P2 (P * P)
#define Q2 (Q * Q)

typedef struct job {
    const wd_conv_args *args;
    wd_winograd_plan plan;
    int64_t co0, co1; /* the output channels of the current block */
    unit *weights;    /* [taps, depths, POINTS, panels, depth, WIDE] */
    char *workspace;  /* of all parts */
} job;

/* ---- weights ---- */

/* out = G w, one axis. */
ALWAYS_INLINE void transform_weights(vec out[WINDOW], const vec w[3])
{
    vec p = (w[0] + vec_all(P2) * w[2]) * vec_all(1 / (2 * P2 * (P2 - Q2)));
    vec q = (w[0] + vec_all(Q2) * w[2]) * vec_all(1 / (2 * Q2 * (Q2 - P2)));
    vec p1 = w[1] * vec_all(P / (2 * P2 * (P2 - Q2)));
    vec q1 = w[1] * vec_all(Q / (2 * Q2 * (Q2 - P2)));
    out[0] = w[0] * vec_all(1 / (P2 * Q2));
    out[1] = p + p1;
    out[2] = p - p1;
    out[3] = q + q1;
    out[4] = q - q1;
    out[5] = w[2];
}

/* Writes the weights of input channel c of time tap t for output channels [co, co + VL) to `out`,
 * with points `step` floats apart. Beyond the last channel they are zero. */
static void put_weights(unit *out, int64_t step, const wd_conv_args *a, int64_t t, int64_t c,
                        int64_t co)
{
    enum { TAPS = 9 };
    unit lanes[TAPS][VL] = {{0}};
    int64_t volume = a->kernel[0] * TAPS, count = least(VL, a->co - co);
    const float *w = (const float *)a->w + (co * a->ci + c) * volume + t * TAPS;
    for (int64_t l = 0; l < count; l++, w += a->ci * volume)
        for (int i = 0; i < TAPS; i++) lanes[i][l] = w[i];
    vec middle[WINDOW][3];
    TIMES(j, 3)
    {
        vec column[WINDOW];
        const vec taps[3] = {vec_load(lanes[j]), vec_load(lanes[3 + j]), vec_load(lanes[6 + j])};
        transform_weights(column, taps);
        TIMES(i, WINDOW) middle[i][j] = column[i];
    }
    TIMES(i, WINDOW)
    {
        vec row[WINDOW];
        transform_weights(row, middle[i]);
        TIMES(j, WINDOW) vec_store(out + (i * WINDOW + j) * step, row[j]);
    }
}

/* Index: panel, and in it input channel after input channel of each time tap. */
static void make_weights(int64_t begin, int64_t end, void *context)
{
    const job *w = context;
    const wd_conv_args *a = w->args;
    int64_t depth = w->plan.depth, panels = w->plan.width / WIDE, step = panels * depth * WIDE;
    int64_t channels = (a->tap1 - a->tap0) * a->ci;
    for (int64_t i = begin; i < end; i++) {
        int64_t panel = i / channels, t = i % channels / a->ci, c = i % a->ci;
        int64_t block = t * w->plan.depths + c / depth;
        unit *out = w->weights + block * POINTS * step + (panel * depth + c % depth) * WIDE;
        for (int half = 0; half < WIDE; half += VL)
            put_weights(out + half, step, a, a->tap0 + t, c, w->co0 + panel * WIDE + half);
    }
}

/* ---- tiles ---- */

/* The position of a tile of the result. */
typedef struct place {
    int64_t sample, frame, row, column; /* of its first pixel */
} place;

static place place_of(const job *w, int64_t tile)
{
    int64_t picture = tile / (w->plan.rows * w->plan.columns);
    int64_t at = tile % (w->plan.rows * w->plan.columns);
    return (place){picture / w->args->out[0], picture % w->args->out[0],
                   at / w->plan.columns * SIDE, at % w->plan.columns * SIDE};
}

/* out = Bt x, one axis. */
ALWAYS_INLINE void transform_input(vec out[WINDOW], const vec x[WINDOW])
{
    vec even_p = vec_fma(vec_all(-Q2), x[2], x[4]), odd_p = vec_fma(vec_all(-Q2), x[1], x[3]);
    vec even_q = vec_fma(vec_all(-P2), x[2], x[4]), odd_q = vec_fma(vec_all(-P2), x[1], x[3]);
    out[0] = vec_fma(vec_all(P2 * Q2), x[0], vec_fma(vec_all(-(P2 + Q2)), x[2], x[4]));
    out[1] = vec_fma(vec_all(P), odd_p, even_p);
    out[2] = vec_fma(vec_all(-P), odd_p, even_p);
    out[3] = vec_fma(vec_all(Q), odd_q, even_q);
    out[4] = vec_fma(vec_all(-Q), odd_q, even_q);
    out[5] = vec_fma(vec_all(P2 * Q2), x[1], vec_fma(vec_all(-(P2 + Q2)), x[3], x[5]));
}

/* Transforms `depth` channels of a window, with pixels at `x`, and writes the points to `out` at
 * `at`. */
static void put_input(unit *out, const int64_t at[POINTS], const float *const x[POINTS],
                      int64_t depth)
{
    for (int64_t c = 0; c < depth; c += VL) {
        vec middle[WINDOW][WINDOW];
        TIMES(j, WINDOW)
        {
            vec pixels[WINDOW], column[WINDOW];
            TIMES(i, WINDOW) pixels[i] = vec_load(x[i * WINDOW + j] + c);
            transform_input(column, pixels);
            TIMES(i, WINDOW) middle[i][j] = column[i];
        }
        TIMES(i, WINDOW)
        {
            vec row[WINDOW];
            transform_input(row, middle[i]);
            TIMES(j, WINDOW) vec_store(out + at[i * WINDOW + j] + c, row[j]);
        }
    }
}

/* Input channels [c, c + depth) of time tap t for the tiles [tile, end) -> rows of LINE. */
static void spread(unit *out, const job *w, int64_t tile, int64_t end, int64_t t, int64_t c,
                   int64_t depth)
{
    static const float zeros[DEPTH];
    const wd_conv_args *a = w->args;
    for (; tile < end; tile++, out += LINE) {
        place p = place_of(w, tile);
        const float *x = a->x, *pixel[POINTS];
        x += (p.sample * a->in[0] + p.frame + t) * a->in[1] * a->in[2] * a->ci + c;
        for (int i = 0; i < POINTS; i++) {
            int64_t row = p.row - a->pad_before[1] + i / WINDOW;
            int64_t column = p.column - a->pad_before[2] + i % WINDOW;
            bool inside = row >= 0 && row < a->in[1] && column >= 0 && column < a->in[2];
            pixel[i] = inside ? x + (row * a->in[2] + column) * a->ci : zeros;
        }
        put_input(out, w->plan.spread_at, pixel, depth);
    }
}

/* The products of one block of input channels: sums (+)= rows times panels, for every point. */
static void multiply_points(unit *sums, const unit *rows, const unit *weights, const job *w,
                            int64_t tiles, int64_t depth, bool add)
{
    const wd_winograd_plan *p = &w->plan;
    int64_t count = w->co1 - w->co0, panel = p->depth * WIDE;
    for (int i = 0; i < POINTS; i++, sums += p->sums_step)
        for (int64_t j = 0; j < p->width; j += WIDE, weights += panel)
            if (j < count)
                multiply_rows(sums + j, p->width, rows + p->spread_at[i], weights, tiles, count - j,
                              depth, add, PACK_FLOAT);
}

/* out = At sums, one axis. */
ALWAYS_INLINE void transform_sums(vec out[SIDE], const vec m[WINDOW])
{
    vec even_p = m[1] + m[2], odd_p = m[1] - m[2], even_q = m[3] + m[4], odd_q = m[3] - m[4];
    out[0] = m[0] + even_p + even_q;
    out[1] = vec_fma(vec_all(P), odd_p, vec_all(Q) * odd_q);
    out[2] = vec_fma(vec_all(P2), even_p, vec_all(Q2) * even_q);
    out[3] = vec_fma(vec_all(P * P2), odd_p, vec_fma(vec_all(Q * Q2), odd_q, m[5]));
}

/* VL output channels of a tile. */
ALWAYS_INLINE void finish_lanes(vec y[SIDE][SIDE], const unit *sums, int64_t step)
{
    vec middle[SIDE][WINDOW];
    TIMES(j, WINDOW)
    {
        vec m[WINDOW], column[SIDE];
        TIMES(i, WINDOW) m[i] = vec_load(sums + (i * WINDOW + j) * step);
        transform_sums(column, m);
        TIMES(i, SIDE) middle[i][j] = column[i];
    }
    TIMES(i, SIDE) transform_sums(y[i], middle[i]);
}

/* Converts the sums of the tiles [tile, end) to pixels of the result; a tile may extend beyond the
 * picture. */
static void finish(const job *w, const unit *sums, int64_t tile, int64_t end)
{
    const wd_conv_args *a = w->args;
    for (; tile < end; tile++, sums += w->plan.width) {
        place p = place_of(w, tile);
        int64_t rows = least(SIDE, a->out[1] - p.row), columns = least(SIDE, a->out[2] - p.column);
        int64_t picture = p.sample * a->out[0] + p.frame;
        float *to = a->y;
        to += ((picture * a->out[1] + p.row) * a->out[2] + p.column) * a->co + w->co0;
        for (int64_t c = 0; c < w->co1 - w->co0; c += VL) {
            vec y[SIDE][SIDE];
            vec bias = a->bias ? vec_load((const float *)a->bias + w->co0 + c) : vec_all(0);
            finish_lanes(y, sums + c, w->plan.sums_step);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < columns; j++)
                    vec_store(to + (i * a->out[2] + j) * a->co + c, y[i][j] + bias);
        }
    }
}

/* ---- the convolution ---- */

static void make_tiles(const job *w, unit *workspace, int64_t tile, int64_t end)
{
    const wd_conv_args *a = w->args;
    const wd_winograd_plan *p = &w->plan;
    int64_t blocks = (a->tap1 - a->tap0) * p->depths, step = POINTS * p->depth * p->width;
    unit *rows = workspace, *sums = workspace + p->spread_floats;
    for (int64_t i = 0; i < blocks; i++) {
        int64_t c = i % p->depths * p->depth, depth = least(p->depth, a->ci - c);
        spread(rows, w, tile, end, i / p->depths, c, depth);
        multiply_points(sums, rows, w->weights + i * step, w, end - tile, depth, i > 0);
    }
    finish(w, sums, tile, end);
}

static void make_part(int64_t begin, int64_t end, void *context)
{
    const job *w = context;
    const wd_winograd_plan *p = &w->plan;
    for (int64_t part = begin; part < end; part++) {
        unit *workspace = (unit *)(w->workspace + (size_t)part * p->part_bytes);
        int64_t first = p->tiles * part / p->parts, last = p->tiles * (part + 1) / p->parts;
        for (int64_t tile = first; tile < last; tile += WD_WINOGRAD_TILES)
            make_tiles(w, workspace, tile, least(tile + WD_WINOGRAD_TILES, last));
    }
}

void KERNEL(conv)(const void *args, wd_cpu_context *context)
{
    const wd_conv_args *a = args;
    job w = {.args = a, .plan = wd__winograd_plan_make(a, wd_parallel_threads())};
    const wd_winograd_plan *p = &w.plan;
    assert(a->type == WD_F32 && a->w_type == WD_F32 && wd__winograd_takes(a));
    WD_REQUIRE(p->weight_bytes + (size_t)p->parts * p->part_bytes <= context->workspace_bytes,
               "a convolution in a workspace of %zu bytes", context->workspace_bytes);
    w.weights = context->workspace;
    w.workspace = (char *)context->workspace + p->weight_bytes;
    for (; w.co0 < a->co; w.co0 = w.co1) {
        w.co1 = least(w.co0 + p->width, a->co);
        wd_parallel_for(p->width / WIDE * (a->tap1 - a->tap0) * a->ci, 64, make_weights, &w);
        wd_parallel_for(p->parts, 1, make_part, &w);
    }
}
