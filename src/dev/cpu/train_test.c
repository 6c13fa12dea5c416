/* Sums, loss and optimiser against plain C: see kernels/kernels_check.h. */
#include "kernels/kernels_check.h"

#include "core/random.h"
#include "dev/moments.h"

/* Sums in fp32 lanes or chunks, against double. */
static const tolerance sum_tolerance = {1e-5, 1e-6};

static const int64_t counts[] = {1, 15, 33, 1023, 1025, 5000, 32768, 32769, 150001};
enum { COUNTS = sizeof counts / sizeof *counts };
static const wd_dtype types[] = {WD_F32, WD_BF16, WD_F16};

typedef struct params {
    int64_t samples, width, count, step;
    wd_dtype type, grad_type;
    filling how;
    float beta, factor, decay, ema_decay, norm_max;
    bool copy, ema, slow, weighted, split;
} params;

static void make_sum_rows(world *w, void *out, const void *context)
{
    const params *p = context;
    int64_t stride = p->width + (p->samples == 33 ? 4 : 0);
    *(wd_sum_rows_args *)out =
        (wd_sum_rows_args){.y = out_array(w, WD_F32, p->width, p->width, ORDINARY),
                           .x = make_array(w, p->type, p->samples * stride, ORDINARY),
                           .type = p->type,
                           .rows = p->samples,
                           .width = p->width,
                           .x_stride = p->samples == 33 ? stride : 0,
                           .beta = p->beta};
}

static void sum_rows(void **state)
{
    (void)state;
    static const int64_t rows[] = {0, 1, 31, 32, 33, 600};
    static const int64_t widths[] = {1, 31, 160, 1025};
    for (int i = 0; i < 6; i++)
        for (int variant = 0; variant < 16; variant++) {
            params p = {.samples = rows[i],
                        .width = widths[variant / 4],
                        .type = types[variant % 2],
                        .beta = (float)(variant / 2 % 2)};
            check_kernel(WD_OP_SUM_ROWS, make_sum_rows, &p, sum_tolerance);
        }
}

static void mse_part(world *w, void *out, const void *context, int64_t sample)
{
    const params *p = context;
    int64_t n = p->samples * p->width;
    size_t size = wd_dtype_bytes(p->type);
    wd_mse_args *a = out;
    *a = (wd_mse_args){.loss = out_array(w, WD_F32, p->samples, 1, ORDINARY),
                       .dy = p->copy ? out_array(w, p->type, n, p->width, ORDINARY) : NULL,
                       .y = make_array(w, p->type, n, p->how),
                       .target = make_array(w, WD_F32, n, p->how),
                       .weight = p->weighted ? make_array(w, WD_F32, p->samples, ORDINARY) : NULL,
                       .type = p->type,
                       .samples = p->samples,
                       .width = p->width,
                       .factor = 0.125f};
    if (sample < 0) return;
    a->loss += sample;
    if (a->dy) a->dy = (char *)a->dy + (size_t)(sample * p->width) * size;
    a->y = (const char *)a->y + (size_t)(sample * p->width) * size;
    a->target += sample * p->width;
    if (a->weight) a->weight += sample;
    a->samples = 1;
}

static void make_mse(world *w, void *args, const void *context)
{
    mse_part(w, args, context, -1);
}

static void mse(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 16; variant++) {
            params p = {.samples = 3,
                        .width = counts[i],
                        .type = types[variant % 2],
                        .copy = variant / 2 % 2,
                        .weighted = variant / 4 % 2,
                        .how = variant / 8 ? NASTY : ORDINARY};
            check_kernel(WD_OP_MSE, make_mse, &p, sum_tolerance);
            check_parts(WD_OP_MSE, make_mse, mse_part, 3, &p);
        }
}

static void make_sum_squares(world *w, void *out, const void *context)
{
    const params *p = context;
    *(wd_sum_squares_args *)out =
        (wd_sum_squares_args){.sum = out_array(w, WD_F32, 1, 1, POSITIVE),
                              .x = make_array(w, p->type, p->count, p->how),
                              .count = p->count,
                              .type = p->type};
}

static void sum_squares(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 4; variant++) {
            params p = {.count = counts[i],
                        .type = types[variant / 2],
                        .how = variant % 2 ? NASTY : ORDINARY};
            check_kernel(WD_OP_SUM_SQUARES, make_sum_squares, &p, (tolerance){1e-6, 0});
        }
}

/* Sums of chunks: the reference's, and in order they add up to the bits of sum_squares. */
static void chunks_add_up(void **state)
{
    (void)state;
    enum { CHUNKS_MAX = 5, COUNT = CHUNKS_MAX * WD_SUM_CHUNK };
    wd_cpu_table table, reference;
    if (!kernel_case_begin(WD_OP_SUM_SQUARES_CHUNKS)) return;
    float *normal = executor_memory(COUNT * sizeof *normal);
    uint16_t *rounded = executor_memory(COUNT * sizeof *rounded);
    double *sums = executor_memory(CHUNKS_MAX * sizeof *sums);
    float *whole = executor_memory(sizeof *whole);
    wd__cpu_table_reference(&reference);
    wd_random_normal(normal, COUNT, (wd_random){.stream = WD_RANDOM_TEST}, 0);
    for (int i = 0; i < COUNT; i++) rounded[i] = wd_f32_to_bf16(normal[i]);
    for (int executor = 0; executor < executors(); executor++)
        for (int i = 0; i < 2 * COUNTS; i++) {
            const wd_dtype type = i < COUNTS ? WD_F32 : WD_BF16;
            const void *x = type == WD_F32 ? (const void *)normal : rounded;
            const int64_t count = counts[i % COUNTS];
            double wanted[CHUNKS_MAX], total = 0;
            char name[64];
            executor_use(&table, name, executor, 0);
            run_kernel(&table, WD_OP_SUM_SQUARES_CHUNKS,
                       &(wd_sum_squares_chunks_args){sums, x, count, type});
            run_kernel(&reference, WD_OP_SUM_SQUARES_CHUNKS,
                       &(wd_sum_squares_chunks_args){wanted, x, count, type});
            run_kernel(&table, WD_OP_SUM_SQUARES, &(wd_sum_squares_args){whole, x, count, type});
            for (int64_t c = 0; c * WD_SUM_CHUNK < count; c++) {
                total += sums[c];
                assert_true(fabs(sums[c] - wanted[c]) <= 1e-6 * wanted[c]);
            }
            assert_true((float)total == *whole);
        }
    executor_memory_free(whole);
    executor_memory_free(sums);
    executor_memory_free(rounded);
    executor_memory_free(normal);
    kernel_case_end();
}

static void clip_factor_by_hand(void **state)
{
    (void)state;
    static const struct {
        float sum, norm_max, norm, factor;
    } cases[] = {
        {25, 1, 5, 1 / (5 + 1e-6f)}, {25, 0, 5, 1},    {0.25f, 1, 0.5f, 1}, {0, 1, 0, 1},
        {INFINITY, 1, INFINITY, 0},  {NAN, 0, NAN, 0},
    };
    struct {
        float norm, factor, sum;
        int64_t steps;
    } * s;
    wd_cpu_table table;
    if (!kernel_case_begin(WD_OP_CLIP_FACTOR)) return;
    s = executor_memory(sizeof *s);
    use_last(&table);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s->norm = s->factor = -1;
        s->sum = cases[i].sum;
        s->steps = 7;
        run_kernel(
            &table, WD_OP_CLIP_FACTOR,
            &(wd_clip_factor_args){&s->norm, &s->factor, &s->steps, &s->sum, cases[i].norm_max});
        assert_int_equal(s->steps, cases[i].factor > 0 ? 8 : 7);
        assert_true(s->norm == cases[i].norm || (isnan(s->norm) && isnan(cases[i].norm)));
        assert_true(s->factor == cases[i].factor);
    }
    executor_memory_free(s);
    kernel_case_end();
}

/* Any remainders of weights. Plain C, which computes in double, makes others of them. */
static uint16_t *make_remainders(world *w, int64_t count)
{
    uint16_t *remainder = out_array(w, WD_I16, count, 1, ORDINARY);
    w->array[w->arrays - 1].own = true;
    for (int64_t i = 0; i < count; i++) remainder[i] = (uint16_t)(i * 40503);
    return remainder;
}

/* The numbers of a step that kernels read from memory: how many steps were taken, and the factor of
 * gradients, lr, alpha and beta3. */
static const int64_t *make_step(world *w, const params *p)
{
    int64_t *step = make_array(w, WD_I64, 1, ORDINARY);
    *step = p->step;
    return step;
}

static const float *make_scalars(world *w, const params *p)
{
    float *scalars = make_array(w, WD_F32, 4, ORDINARY);
    memcpy(scalars, (float[]){p->factor, 1e-2f, 3, 0.95f}, 4 * sizeof *scalars);
    return scalars;
}

static void make_adamw(world *w, void *out, const void *context)
{
    const params *p = context;
    const float *scalars = make_scalars(w, p);
    *(wd_adamw_args *)out =
        (wd_adamw_args){.p = p->split ? NULL : out_array(w, WD_F32, p->count, 1, ORDINARY),
                        .remainder = p->split ? make_remainders(w, p->count) : NULL,
                        .m = out_array(w, WD_F32, p->count, 1, ORDINARY),
                        .v = out_array(w, WD_F32, p->count, 1, POSITIVE),
                        .slow = p->slow ? out_array(w, WD_F32, p->count, 1, ORDINARY) : NULL,
                        .copy = p->copy ? out_array(w, p->type, p->count, 1, ORDINARY) : NULL,
                        .ema = p->ema ? out_array(w, WD_F32, p->count, 1, ORDINARY) : NULL,
                        .grad = make_array(w, p->grad_type, p->count, ORDINARY),
                        .factor = &scalars[0],
                        .copy_type = p->type,
                        .grad_type = p->grad_type,
                        .count = p->count,
                        .lr = &scalars[1],
                        .alpha = &scalars[2],
                        .beta3 = &scalars[3],
                        .beta1 = 0.9f,
                        .beta2 = 0.999f,
                        .eps = 1e-8f,
                        .decay = p->decay,
                        .ema_decay = p->ema_decay,
                        .step = make_step(w, p)};
}

static void adamw(void **state)
{
    (void)state;
    static const float ema_decays[] = {0, 0, 0.5f, 0.9995f};
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 48; variant++) {
            params p = {.count = counts[i],
                        .type = types[variant % 3],
                        .grad_type = types[variant / 2 % 2],
                        .copy = variant / 3 % 2,
                        .decay = variant / 6 % 2 ? 0.1f : 0,
                        .factor = variant / 12 % 2 ? 0.3f : 0,
                        .slow = variant / 24,
                        .ema = variant % 4 > 0,
                        .ema_decay = ema_decays[variant % 4],
                        .step = 1 + variant * 100};
            /* p and m may nearly cancel: steps are of the size of lr m / sqrt(v) */
            check_kernel(WD_OP_ADAMW, make_adamw, &p, (tolerance){1e-6, 1e-6});
            p.split = p.copy && p.type == WD_BF16;
            if (p.split) check_kernel(WD_OP_ADAMW, make_adamw, &p, (tolerance){1e-6, 1e-6});
        }
}

static void make_ema(world *w, void *out, const void *context)
{
    const params *p = context;
    *(wd_ema_args *)out =
        (wd_ema_args){.ema = out_array(w, WD_F32, p->count, 1, ORDINARY),
                      .p = p->split ? NULL : make_array(w, WD_F32, p->count, ORDINARY),
                      .copy = p->split ? make_array(w, WD_BF16, p->count, ORDINARY) : NULL,
                      .remainder = p->split ? make_remainders(w, p->count) : NULL,
                      .factor = make_scalars(w, p),
                      .count = p->count,
                      .ema_decay = p->ema_decay,
                      .step = make_step(w, p)};
}

static void ema(void **state)
{
    (void)state;
    static const float decays[] = {0, 0.5f, 0.9995f};
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 12; variant++) {
            params p = {.count = counts[i],
                        .factor = variant / 6 % 2 ? 0.3f : 0,
                        .ema_decay = decays[variant % 3],
                        .step = 1 + variant * 100};
            check_kernel(WD_OP_EMA, make_ema, &p, (tolerance){1e-6, 1e-6});
            p.split = variant % 2;
            if (p.split) check_kernel(WD_OP_EMA, make_ema, &p, (tolerance){1e-6, 1e-6});
        }
}

/* AdamW's EMA has the bits of an EMA of the weights that it leaves. */
static void ema_apart(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    struct {
        float p[COUNT], m[COUNT], v[COUNT], together[COUNT], apart[COUNT], grad[COUNT], factor, lr;
        int64_t step;
    } * s;
    wd_cpu_table table;
    if (!kernel_case_begin(WD_OP_EMA)) return;
    s = executor_memory(sizeof *s);
    memset(s, 0, sizeof *s);
    s->factor = 0.7f;
    s->lr = 0.01f;
    use_last(&table);
    for (int i = 0; i < COUNT; i++) {
        s->p[i] = s->together[i] = s->apart[i] = (float)(i % 37) * 0.1f - 1.7f;
        s->grad[i] = (float)(i % 11) * 0.3f - 1.3f;
    }
    for (s->step = 1; s->step < 20; s->step++) {
        run_kernel(&table, WD_OP_ADAMW,
                   &(wd_adamw_args){.p = s->p,
                                    .m = s->m,
                                    .v = s->v,
                                    .ema = s->together,
                                    .grad = s->grad,
                                    .factor = &s->factor,
                                    .count = COUNT,
                                    .lr = &s->lr,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.99f,
                                    .eps = 1e-8f,
                                    .ema_decay = 0.6f,
                                    .step = &s->step});
        run_kernel(&table, WD_OP_EMA,
                   &(wd_ema_args){.ema = s->apart,
                                  .p = s->p,
                                  .factor = &s->factor,
                                  .count = COUNT,
                                  .ema_decay = 0.6f,
                                  .step = &s->step});
    }
    assert_memory_equal(s->together, s->apart, sizeof s->together);
    assert_memory_not_equal(s->together, s->p, sizeof s->p);
    executor_memory_free(s);
    kernel_case_end();
}

/* ---- moments in 8 bits ---- */

/* Codes and scales of `count` moments: all codes in turn, scales of many sizes, and one group in
 * seven without moments. */
static wd_moments8 out_moments(world *w, wd_moment moment, int64_t count)
{
    const bool first = moment == WD_MOMENT_FIRST;
    const int64_t groups = (count + WD_MOMENT_GROUP - 1) / WD_MOMENT_GROUP;
    uint8_t *codes = out_array(w, first ? WD_I8 : WD_U8, count, 1, ORDINARY);
    uint16_t *scales = out_array(w, WD_I16, groups, 1, ORDINARY);
    for (int64_t g = 0; g < groups; g++) {
        const float scale = ldexpf(1 + (float)(g % 256) / 256, (int)(g % 9) - 6);
        scales[g] = g % 7 == 3 ? 0 : moment_scale(bits_of(scale), 0x8000);
    }
    for (int64_t i = 0; i < count; i++) {
        const int code = first ? (int)(i * 7 % 255) - 127 : 16 + (int)(i * 7 % 240);
        codes[i] = (uint8_t)(scales[i / WD_MOMENT_GROUP] ? code : 0);
    }
    return (wd_moments8){codes, scales};
}

static void adamw_packed_part(world *w, void *out, const void *context, int64_t part)
{
    const params *p = context;
    const float *scalars = make_scalars(w, p);
    const int64_t at = part < 0 ? 0 : part * p->width;
    const int64_t left = p->count - at, size = (int64_t)wd_dtype_bytes(p->type);
    wd_adamw_args *a = out;
    *a = (wd_adamw_args){.p = p->split ? NULL : out_array(w, WD_F32, p->count, 1, ORDINARY),
                         .remainder = p->split ? make_remainders(w, p->count) : NULL,
                         .m8 = out_moments(w, WD_MOMENT_FIRST, p->count),
                         .v8 = out_moments(w, WD_MOMENT_SECOND, p->count),
                         .copy = p->copy ? out_array(w, p->type, p->count, 1, ORDINARY) : NULL,
                         .ema = p->ema ? out_array(w, WD_F32, p->count, 1, ORDINARY) : NULL,
                         .grad = make_array(w, p->grad_type, p->count, ORDINARY),
                         .factor = &scalars[0],
                         .copy_type = p->type,
                         .grad_type = p->grad_type,
                         .count = part < 0 || left < p->width ? left : p->width,
                         .lr = &scalars[1],
                         .beta1 = 0.9f,
                         .beta2 = 0.999f,
                         .eps = 1e-8f,
                         .decay = p->decay,
                         .ema_decay = p->ema_decay,
                         .step = make_step(w, p)};
    if (part < 0) return;
    if (a->p) a->p += at;
    if (a->remainder) a->remainder += at;
    a->m8.codes = (int8_t *)a->m8.codes + at;
    a->m8.scales += at / WD_MOMENT_GROUP;
    a->v8.codes = (uint8_t *)a->v8.codes + at;
    a->v8.scales += at / WD_MOMENT_GROUP;
    if (a->copy) a->copy = (char *)a->copy + at * size;
    if (a->ema) a->ema += at;
    a->grad = (const char *)a->grad + at * (int64_t)wd_dtype_bytes(p->grad_type);
}

static void make_adamw_packed(world *w, void *args, const void *context)
{
    adamw_packed_part(w, args, context, -1);
}

/* Codes may differ by one from those of the plain C version, which steps in double. */
static void adamw_packed(void **state)
{
    (void)state;
    static const float ema_decays[] = {0, 0, 0.5f, 0.9995f};
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 24; variant++) {
            params p = {.count = counts[i],
                        .width = 11 * WD_MOMENT_GROUP,
                        .type = types[variant % 3],
                        .grad_type = types[variant / 2 % 2],
                        .copy = variant / 3 % 2,
                        .decay = variant / 6 % 2 ? 0.1f : 0,
                        .factor = variant / 12 % 2 ? 0.3f : 0,
                        .ema = variant % 4 > 0,
                        .ema_decay = ema_decays[variant % 4],
                        .step = 1 + variant * 100};
            check_kernel(WD_OP_ADAMW, make_adamw_packed, &p, (tolerance){1e-6, 1e-6});
            p.split = p.copy && p.type == WD_BF16;
            if (p.split) check_kernel(WD_OP_ADAMW, make_adamw_packed, &p, (tolerance){1e-6, 1e-6});
            if (i == 4)
                check_parts(WD_OP_ADAMW, make_adamw_packed, adamw_packed_part,
                            (p.count + p.width - 1) / p.width, &p);
        }
}

static void make_moments(world *w, void *out, const void *context)
{
    const params *p = context;
    const wd_moment moment = p->slow ? WD_MOMENT_SECOND : WD_MOMENT_FIRST;
    float *values = p->copy ? make_array(w, WD_F32, p->count, p->how)
                            : out_array(w, WD_F32, p->count, 1, p->how);
    for (int64_t i = 0; p->slow && i < p->count; i++) values[i] = fabsf(values[i]);
    *(wd_moments_args *)out = (wd_moments_args){.values = values,
                                                .codes = out_moments(w, moment, p->count),
                                                .moment = moment,
                                                .pack = p->copy,
                                                .count = p->count};
}

static void moments(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 8; variant++) {
            params p = {.count = counts[i],
                        .copy = variant % 2,
                        .slow = variant / 2 % 2,
                        .how = variant / 4 ? NASTY : ORDINARY};
            check_kernel(WD_OP_MOMENTS, make_moments, &p, (tolerance){0, 0});
        }
}

/* Every code of the least and the largest scales, and between them of every fifth scale, so of all
 * mantissas: what is unpacked packs to the same bits. A group has the largest code, as those that
 * are packed have. */
static void what_is_unpacked_packs_to_the_same_bits(void **state)
{
    (void)state;
    enum { GROUPS = 18, COUNT = GROUPS * WD_MOMENT_GROUP, LEAST = 0x4700, EDGE = 512 };
    static const int ends[] = {0xfd00, 0xbf00};
    struct {
        float values[COUNT];
        uint8_t codes[COUNT], again[COUNT];
        uint16_t scales[GROUPS], scales_again[GROUPS];
    } * s;
    wd_cpu_table table;
    if (!kernel_case_begin(WD_OP_MOMENTS)) return;
    s = executor_memory(sizeof *s);
    use_last(&table);
    for (int second = 0; second < 2; second++)
        for (int scale = LEAST - 1; scale < ends[second];
             scale += scale < LEAST + EDGE || scale >= ends[second] - EDGE ? 1 : 5) {
            const int top = second ? 255 : 127, all = second ? 240 : 255;
            wd_moments_args a = {s->values, {s->codes, s->scales}, (wd_moment)second, false, COUNT};
            for (int g = 0; g < GROUPS; g++) s->scales[g] = (uint16_t)(scale < LEAST ? 0 : scale);
            for (int i = 0; i < COUNT; i++) {
                const int code = i % all + (second ? WD_MOMENT_SECOND_LEAST : -127);
                s->codes[i] = (uint8_t)(scale < LEAST ? 0 : i % WD_MOMENT_GROUP == 5 ? top : code);
            }
            run_kernel(&table, WD_OP_MOMENTS, &a);
            for (int i = 0; scale < LEAST && i < COUNT; i++) assert_true(s->values[i] == 0);
            a = (wd_moments_args){
                s->values, {s->again, s->scales_again}, (wd_moment)second, true, COUNT};
            run_kernel(&table, WD_OP_MOMENTS, &a);
            assert_memory_equal(s->again, s->codes, sizeof s->codes);
            assert_memory_equal(s->scales_again, s->scales, sizeof s->scales);
        }
    executor_memory_free(s);
    kernel_case_end();
}

/* What a group becomes whose largest value cannot be packed. */
static void moments_that_are_not_finite_stay_so(void **state)
{
    (void)state;
    static const float largest[] = {INFINITY, NAN, 1e38f, 1e-18f};
    struct {
        float values[WD_MOMENT_GROUP];
        int8_t codes[WD_MOMENT_GROUP];
        uint16_t scale;
    } * s;
    wd_cpu_table table;
    if (!kernel_case_begin(WD_OP_MOMENTS)) return;
    s = executor_memory(sizeof *s);
    use_last(&table);
    for (int i = 0; i < 4; i++) {
        wd_moments_args a = {
            s->values, {s->codes, &s->scale}, WD_MOMENT_FIRST, true, WD_MOMENT_GROUP};
        for (int k = 0; k < WD_MOMENT_GROUP; k++) s->values[k] = k == 9 ? largest[i] : 1e-20f;
        run_kernel(&table, WD_OP_MOMENTS, &a);
        assert_int_equal(s->scale >= WD_MOMENT_NOT_FINITE, i < 3);
        a.pack = false;
        run_kernel(&table, WD_OP_MOMENTS, &a);
        for (int k = 0; k < WD_MOMENT_GROUP; k++)
            assert_true(i < 3 ? !isfinite(s->values[k]) : s->values[k] == 0);
    }
    executor_memory_free(s);
    kernel_case_end();
}

/* Averages move by less than a code in each step, and yet they are those of doubles, from zeros and
 * from above: the mean of all elements of a size is within a tenth. */
static void averages_are_not_stuck(void **state)
{
    (void)state;
    enum { STEPS = 3000, LAST = 500, SIZES = 3, COUNT = 3 * WD_MOMENT_GROUP };
    static const float sizes[SIZES] = {1, 0.2f, 0.05f};
    struct {
        float p[COUNT], grad[COUNT], factor, lr;
        int64_t step;
        uint16_t m_scale[3], v_scale[3];
        int8_t m8[COUNT];
        uint8_t v8[COUNT];
    } * s;
    wd_cpu_table table;
    if (!kernel_case_begin(WD_OP_ADAMW)) return;
    s = executor_memory(sizeof *s);
    use_last(&table);
    for (int above = 0; above < 2; above++) {
        double m[COUNT], v[COUNT], m_off[SIZES] = {0}, v_off[SIZES] = {0};
        memset(s, 0, sizeof *s);
        s->factor = 1;
        for (int i = 0; i < COUNT; i++) m[i] = above ? 2 : 0, v[i] = m[i] * m[i];
        for (int i = 0; above && i < 3; i++)
            s->m_scale[i] = s->v_scale[i] = moment_scale(bits_of(2), 0);
        memset(s->m8, above ? 127 : 0, sizeof s->m8);
        memset(s->v8, above ? 255 : 0, sizeof s->v8);
        for (s->step = 1; s->step <= STEPS; s->step++) {
            for (int i = 0; i < COUNT; i++)
                s->grad[i] = sizes[i % SIZES] * (1 + 0.1f * (float)((i + s->step) % 13 - 6));
            run_kernel(&table, WD_OP_ADAMW,
                       &(wd_adamw_args){.p = s->p,
                                        .m8 = {s->m8, s->m_scale},
                                        .v8 = {s->v8, s->v_scale},
                                        .grad = s->grad,
                                        .factor = &s->factor,
                                        .count = COUNT,
                                        .lr = &s->lr,
                                        .beta1 = 0.99f,
                                        .beta2 = 0.998f,
                                        .eps = 1e-8f,
                                        .step = &s->step});
            for (int i = 0; i < COUNT; i++) {
                const int group = i / WD_MOMENT_GROUP;
                const double share = 1.0 / (LAST * COUNT / SIZES), grad = s->grad[i];
                m[i] = 0.99 * m[i] + 0.01 * grad;
                v[i] = 0.998 * v[i] + 0.002 * grad * grad;
                if (s->step <= STEPS - LAST) continue;
                const float m_scale = moment_scale_value(s->m_scale[group]);
                const float v_scale = moment_scale_value(s->v_scale[group]);
                m_off[i % SIZES] += share * (first_moment(s->m8[i], m_scale) / m[i] - 1);
                v_off[i % SIZES] += share * (sqrt(second_moment(s->v8[i], v_scale) / v[i]) - 1);
            }
        }
        for (int i = 0; i < SIZES; i++) {
            assert_true(fabs(m_off[i]) < 0.07 && fabs(v_off[i]) < 0.07);
        }
    }
    executor_memory_free(s);
    kernel_case_end();
}

/* Steps on one weight, by the formula in doubles; `alpha` of 0 is AdamW. Returns how many moved. */
static int steps_by_hand(const float *grads, int64_t steps, float alpha, double most)
{
    struct {
        float p, m, v, slow, ema, grad, factor, lr, alpha, beta3;
        int64_t step;
    } *s = executor_memory(sizeof *s);
    wd_cpu_table table;
    use_last(&table);
    memset(s, 0, sizeof *s);
    s->p = s->factor = 0.5f;
    s->ema = 0.25f;
    s->lr = 0.1f;
    s->alpha = alpha;
    s->beta3 = 0.95f;
    double p2 = s->p, m2 = 0, v2 = 0, slow2 = 0, ema2 = s->ema;
    int moved = 0;
    for (int64_t t = 1; t <= steps; t++) {
        s->step = t;
        s->grad = grads[t - 1];
        run_kernel(&table, WD_OP_ADAMW,
                   &(wd_adamw_args){.p = &s->p,
                                    .m = &s->m,
                                    .v = &s->v,
                                    .slow = alpha > 0 ? &s->slow : NULL,
                                    .ema = &s->ema,
                                    .grad = &s->grad,
                                    .factor = &s->factor,
                                    .count = 1,
                                    .lr = &s->lr,
                                    .alpha = &s->alpha,
                                    .beta3 = &s->beta3,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.99f,
                                    .eps = 1e-8f,
                                    .decay = 0.01f,
                                    .ema_decay = 0.2f,
                                    .step = &s->step});
        const double g = 0.5 * grads[t - 1];
        m2 = 0.9 * m2 + 0.1 * g;
        v2 = 0.99 * v2 + 0.01 * g * g;
        double move = 0.1 * (m2 / (1 - pow(0.9, t)));
        if (alpha > 0) {
            slow2 = 0.95 * slow2 + 0.05 * g;
            move += 0.1 * alpha * slow2;
            move = move * g > 0 ? 1.5 * move : 0;
        }
        moved += move != 0;
        p2 *= 1 - 0.1 * 0.01;
        p2 -= move / (sqrt(v2 / (1 - pow(0.99, t))) + 1e-8);
        ema2 += (1 - fmin(0.2, (1 + (double)t) / (10 + (double)t))) * (p2 - ema2);
        assert_true(fabs(s->p - p2) < most && fabs(s->ema - ema2) < most);
        assert_true(fabs(s->slow - slow2) < 1e-6);
    }
    executor_memory_free(s);
    return moved;
}

static void adamw_by_hand(void **state)
{
    (void)state;
    const float grads[] = {1.0f, -0.4f, 3.0f};
    if (!kernel_case_begin(WD_OP_ADAMW)) return;
    assert_int_equal(steps_by_hand(grads, 3, 0, 1e-6), 3);
    kernel_case_end();
}

/* Some steps move the weight, and some do not. */
static void ademamix_by_hand(void **state)
{
    (void)state;
    const float grads[] = {1.0f, -0.4f, 3.0f, -2.0f, 0, -9.0f};
    if (!kernel_case_begin(WD_OP_ADAMW)) return;
    assert_int_equal(steps_by_hand(grads, 6, 4, 2e-6), 3);
    kernel_case_end();
}

/* ---- master weights as a copy and a remainder ---- */

enum { MASTER_ROWS = 3 };

static void make_masters(world *w, void *out, const void *context)
{
    const params *p = context;
    const int64_t rows = p->samples, stride = p->count + 5, all = rows * (p->count + 11);
    const bool merges = !p->copy, halves = merges || p->ema;
    *(wd_masters_args *)out =
        (wd_masters_args){.values = out_array(w, WD_F32, all, 1, p->how),
                          .copy = halves ? out_array(w, WD_I16, all, 1, ORDINARY) : NULL,
                          .remainder = halves ? out_array(w, WD_I16, all, 1, ORDINARY) : NULL,
                          .split = p->copy,
                          .rows = rows,
                          .count = p->count,
                          .values_stride = p->count + 11,
                          .stride = stride};
}

static void masters(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int variant = 0; variant < 6; variant++) {
            params p = {.count = counts[i],
                        .samples = counts[i] < 2000 && variant % 2 ? MASTER_ROWS : 1,
                        .copy = variant > 1, /* they are split, or, without `ema`, settled */
                        .ema = variant > 3,
                        .how = i % 2 ? NASTY : ORDINARY};
            check_kernel(WD_OP_MASTERS, make_masters, &p, (tolerance){0, 0});
        }
}

/* Every lower half of odd and even upper halves: of zero, subnormal and usual numbers, the largest,
 * infinity and NaN. */
static void what_is_split_is_merged_again(void **state)
{
    (void)state;
    static const uint32_t upper[] = {0,      1,      0x7f,   0x80,   0x3f80, 0x3f81, 0xbf80,
                                     0x7f7e, 0x7f7f, 0xff7f, 0x7f80, 0x7fc0, 0xffff, 0x8000};
    enum { HALVES = 1 << 16 };
    struct {
        float values[HALVES], merged[HALVES];
        uint16_t copy[HALVES], remainder[HALVES];
    } * s;
    wd_cpu_table table;
    if (!kernel_case_begin(WD_OP_MASTERS)) return;
    s = executor_memory(sizeof *s);
    use_last(&table);
    for (size_t u = 0; u < sizeof upper / sizeof *upper; u++) {
        const wd_masters_args splits = {s->values, s->copy, s->remainder, true, 1, HALVES, 0, 0};
        const wd_masters_args merges = {s->merged, s->copy, s->remainder, false, 1, HALVES, 0, 0};
        int moved = 0;
        for (uint32_t i = 0; i < HALVES; i++) s->values[i] = float_of(upper[u] << 16 | i);
        run_kernel(&table, WD_OP_MASTERS, &splits);
        run_kernel(&table, WD_OP_MASTERS, &merges);
        for (uint32_t i = 0; i < HALVES; i++) {
            const uint32_t before = upper[u] << 16 | i, after = bits_of(s->values[i]);
            assert_int_equal(s->copy[i], bf16_bits(float_of(before)) >> 16);
            assert_true(after == before || after == before - 1);
            moved += after != before;
            if (isnan(s->values[i]))
                assert_true(isnan(s->merged[i]));
            else
                assert_int_equal(bits_of(s->merged[i]), after);
        }
        assert_int_equal(moved, upper[u] % 2 == 0);
    }
    executor_memory_free(s);
    kernel_case_end();
}

enum { SPLIT_STEPS = 12, SPLIT_COUNT = 1000 };

/* The state of a step: what is whole has `p`, what is split a remainder. */
typedef struct stepped {
    float p[SPLIT_COUNT], m[SPLIT_COUNT], v[SPLIT_COUNT], slow[SPLIT_COUNT], ema[SPLIT_COUNT];
    float ema_apart[SPLIT_COUNT];
    uint8_t codes[2][SPLIT_COUNT];
    uint16_t scales[2][SPLIT_COUNT / WD_MOMENT_GROUP + 1], copy[SPLIT_COUNT];
    uint16_t remainder[SPLIT_COUNT];
    float grad[SPLIT_COUNT], factor, lr, alpha, beta3;
    int64_t step;
} stepped;

static void step_some(const wd_cpu_table *table, stepped *s, bool split, int kind, int64_t step)
{
    s->factor = 0.7f;
    s->lr = 0.01f;
    s->alpha = 3;
    s->beta3 = 0.95f;
    s->step = step;
    for (int i = 0; i < SPLIT_COUNT; i++) s->grad[i] = (float)((i + step) % 11) * 0.3f - 1.3f;
    wd_adamw_args args = {.p = split ? NULL : s->p,
                          .remainder = split ? s->remainder : NULL,
                          .m = kind < 2 ? s->m : NULL,
                          .v = kind < 2 ? s->v : NULL,
                          .m8 = {s->codes[0], s->scales[0]},
                          .v8 = {s->codes[1], s->scales[1]},
                          .slow = kind == 1 ? s->slow : NULL,
                          .copy = s->copy,
                          .copy_type = WD_BF16,
                          .ema = s->ema,
                          .grad = s->grad,
                          .factor = &s->factor,
                          .count = SPLIT_COUNT,
                          .lr = &s->lr,
                          .alpha = &s->alpha,
                          .beta3 = &s->beta3,
                          .beta1 = 0.9f,
                          .beta2 = 0.99f,
                          .eps = 1e-8f,
                          .decay = 0.1f,
                          .ema_decay = 0.6f,
                          .step = &s->step};
    run_kernel(table, WD_OP_ADAMW, &args);
    run_kernel(table, WD_OP_EMA,
               &(wd_ema_args){.ema = s->ema_apart,
                              .p = args.p,
                              .copy = s->copy,
                              .remainder = s->remainder,
                              .factor = &s->factor,
                              .count = SPLIT_COUNT,
                              .ema_decay = 0.6f,
                              .step = &s->step});
}

/* AdamW, AdEMAMix and AdamW with moments in 8 bits give the same bits, whether weights are whole or
 * split, and so does the EMA, with AdamW or apart. */
static void split_weights_step_like_whole_ones(void **state)
{
    (void)state;
    wd_cpu_table table;
    if (!kernel_case_begin(WD_OP_ADAMW)) return;
    stepped *whole = executor_memory(sizeof *whole), *split = executor_memory(sizeof *split);
    use_last(&table);
    for (int kind = 0; kind < 3; kind++) {
        memset(whole, 0, sizeof *whole);
        for (int i = 0; i < SPLIT_COUNT; i++)
            whole->p[i] = whole->ema[i] = whole->ema_apart[i] = (float)(i % 37) * 0.1f - 1.7f;
        *split = *whole;
        run_kernel(&table, WD_OP_MASTERS,
                   &(wd_masters_args){split->p, split->copy, split->remainder, true, 1, SPLIT_COUNT,
                                      0, 0});
        for (int64_t step = 1; step <= SPLIT_STEPS; step++) {
            step_some(&table, whole, false, kind, step);
            step_some(&table, split, true, kind, step);
        }
        run_kernel(&table, WD_OP_MASTERS,
                   &(wd_masters_args){split->p, split->copy, split->remainder, false, 1,
                                      SPLIT_COUNT, 0, 0});
        memset(split->remainder, 0, sizeof split->remainder);
        assert_memory_equal(whole, split, sizeof *whole);
        assert_memory_equal(whole->ema, whole->ema_apart, sizeof whole->ema);
    }
    executor_memory_free(split);
    executor_memory_free(whole);
    kernel_case_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kernel_test(sum_rows),
        kernel_test(mse),
        kernel_test(chunks_add_up),
        kernel_test(sum_squares),
        kernel_test(clip_factor_by_hand),
        kernel_test(adamw),
        kernel_test(adamw_by_hand),
        kernel_test(ema),
        kernel_test(ema_apart),
        kernel_test(adamw_packed),
        kernel_test(moments),
        kernel_test(what_is_unpacked_packs_to_the_same_bits),
        kernel_test(moments_that_are_not_finite_stay_so),
        kernel_test(averages_are_not_stuck),
        kernel_test(masters),
        kernel_test(what_is_split_is_merged_again),
        kernel_test(split_weights_step_like_whole_ones),
        kernel_test(ademamix_by_hand),
    };
    return cmocka_run_group_tests_name("training kernels", tests, NULL, NULL);
}
