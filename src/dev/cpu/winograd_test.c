/* Convolutions of 3x3 taps through isa/winograd.c, against plain C on every instruction set; the
 * same bits for any number of threads, and for pictures and bands of rows by themselves. */
#include "kernels/matrix_check.h"

#include "dev/cpu/winograd_plan.h"

/* The transformations have about five times the rounding error of direct sums. */
static const tolerance winograd_tolerance = {1e-5, 1e-6};

typedef struct params {
    int64_t samples, frames, height, width, ci, co, kt, tap0, before, after; /* padding of rows */
    bool bias;
    wd_dtype type;
} params;

static void make_conv(world *w, void *out, const void *context)
{
    const params *p = context;
    wd_conv_args *a = out;
    *a = (wd_conv_args){.type = p->type,
                        .w_type = p->type,
                        .samples = p->samples,
                        .in = {p->frames, p->height, p->width},
                        .ci = p->ci,
                        .co = p->co,
                        .kernel = {p->kt, 3, 3},
                        .stride = {1, 1, 1},
                        .pad_before = {0, p->before, 1},
                        .pad_after = {0, p->after, 1},
                        .tap0 = p->tap0,
                        .tap1 = p->kt};
    a->out[0] = p->frames - (p->kt - p->tap0) + 1;
    a->out[1] = p->height + p->before + p->after - 2;
    a->out[2] = p->width;
    int64_t outs = p->samples * a->out[0] * a->out[1] * a->out[2] * p->co;
    a->y = out_array(w, p->type, outs, p->co, ORDINARY);
    a->x = make_array(w, p->type, p->samples * p->frames * p->height * p->width * p->ci, ORDINARY);
    a->w = make_array(w, p->type, p->co * p->ci * p->kt * 9, ORDINARY);
    a->bias = p->bias ? make_array(w, p->type, p->co, ORDINARY) : NULL;
    assert_true(wd__winograd_takes(a));
}

static void convolutions(void **state)
{
    (void)state;
    static const params cases[] = {
        {1, 1, 4, 4, 16, 16, 1, 0, 1, 1, true, WD_F32},    /* one tile, padded on all sides */
        {2, 1, 9, 7, 16, 48, 3, 2, 1, 1, true, WD_F32},    /* tiles beyond right and bottom */
        {1, 1, 18, 40, 32, 80, 1, 0, 0, 0, false, WD_F32}, /* a band, several blocks of tiles */
        {1, 1, 13, 9, 32, 16, 1, 0, 1, 0, true, WD_F32},   /* the uppermost band */
        {2, 4, 7, 10, 288, 32, 3, 1, 1, 1, true, WD_F32},  /* two taps, two blocks of channels */
        {1, 3, 8, 6, 512, 112, 3, 0, 1, 1, false, WD_F32}, /* output channels in two goes */
        {1, 1, 8, 8, 16, 32, 3, 2, 1, 1, true, WD_BF16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_matrix(WD_OP_CONV, make_conv, &cases[i], winograd_tolerance);
}

/* The pictures [begin, end). */
static void slice_pictures(void *args, const void *context, int64_t begin, int64_t end)
{
    const params *p = context;
    wd_conv_args *a = args;
    a->x = (const float *)a->x + begin * p->frames * p->height * p->width * p->ci;
    a->y = (float *)a->y + begin * a->out[0] * a->out[1] * a->out[2] * p->co;
    a->samples = end - begin;
}

/* Rows [begin, end) of the result, from the rows of the input that they see. */
static void slice_rows(void *args, const void *context, int64_t begin, int64_t end)
{
    const params *p = context;
    wd_conv_args *a = args;
    int64_t low = begin ? begin - 1 : 0, high = end < p->height ? end + 1 : end;
    a->x = (const float *)a->x + low * p->width * p->ci;
    a->y = (float *)a->y + begin * p->width * p->co;
    a->in[1] = high - low;
    a->out[1] = end - begin;
    a->pad_before[1] = begin == 0;
    a->pad_after[1] = end == p->height;
}

static void parts_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    const params pictures = {5, 1, 12, 24, 32, 48, 3, 2, 1, 1, true, WD_F32};
    const params picture = {1, 1, 30, 21, 32, 48, 3, 2, 1, 1, true, WD_F32};
    static const int64_t samples[] = {1, 3, 5}, rows[] = {8, 12, 24, 30};
    check_slices(WD_OP_CONV, make_conv, slice_pictures, samples, 3, &pictures);
    check_slices(WD_OP_CONV, make_conv, slice_rows, rows, 4, &picture);
}

static void others_are_not_taken(void **state)
{
    (void)state;
    const wd_conv_args taken = {.samples = 1,
                                .in = {1, 8, 8},
                                .out = {1, 8, 8},
                                .ci = 16,
                                .co = 32,
                                .kernel = {1, 3, 3},
                                .stride = {1, 1, 1},
                                .pad_before = {0, 1, 1},
                                .pad_after = {0, 1, 1},
                                .tap1 = 1};
    wd_conv_args a;
    assert_true(wd__winograd_takes(&taken));
    a = taken, a.ci = 12;
    assert_false(wd__winograd_takes(&a));
    a = taken, a.co = 3;
    assert_false(wd__winograd_takes(&a));
    a = taken, a.kernel[1] = a.kernel[2] = 1;
    assert_false(wd__winograd_takes(&a));
    a = taken, a.stride[1] = a.stride[2] = 2;
    assert_false(wd__winograd_takes(&a));
    a = taken, a.out[1] = a.out[2] = 2; /* three quarters of a tile would not be used */
    assert_false(wd__winograd_takes(&a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(parts_have_the_bits_of_the_whole),
        cmocka_unit_test(others_are_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
