/* Convolutions against plain C: see kernels/matrix_check.h. */
#include "kernels/matrix_check.h"

/* fp32 sums of up to some thousand products in another order than the reference's double. */
static const tolerance conv_tolerance = {2e-5, 1e-6};

typedef struct params {
    int64_t samples, frames, height, width, ci, co, kt, side, stride, tap0, pad_before, pad_after;
    bool bias;
    wd_dtype type, w_type;
} params;

static void make_conv(world *w, void *out, const void *context)
{
    const params *p = context;
    wd_conv_args *a = out;
    *a = (wd_conv_args){.type = p->type,
                        .w_type = p->w_type,
                        .samples = p->samples,
                        .in = {p->frames, p->height, p->width},
                        .ci = p->ci,
                        .co = p->co,
                        .kernel = {p->kt, p->side, p->side},
                        .stride = {1, p->stride, p->stride},
                        .pad_before = {0, p->pad_before, p->pad_before},
                        .pad_after = {0, p->pad_after, p->pad_after},
                        .tap0 = p->tap0,
                        .tap1 = p->kt};
    a->out[0] = p->frames - (p->kt - p->tap0) + 1;
    for (int i = 1; i < 3; i++)
        a->out[i] = (a->in[i] + p->pad_before + p->pad_after - p->side) / p->stride + 1;
    int64_t outs = p->samples * a->out[0] * a->out[1] * a->out[2] * p->co;
    a->y = out_array(w, p->type, outs, p->co, ORDINARY);
    a->x = make_array(w, p->type, p->samples * p->frames * p->height * p->width * p->ci, ORDINARY);
    a->w = make_array(w, p->w_type, p->co * p->ci * p->kt * p->side * p->side, ORDINARY);
    a->bias = p->bias ? make_array(w, p->w_type, p->co, ORDINARY) : NULL;
}

static void convolutions(void **state)
{
    (void)state;
    static const params cases[] = {
        {2, 1, 9, 7, 16, 24, 3, 3, 1, 2, 1, 1, true, WD_F32, WD_F32}, /* one causal frame */
        {1, 5, 6, 6, 8, 16, 3, 3, 1, 0, 1, 1, true, WD_F32, WD_F32},  /* all taps */
        {1, 3, 6, 5, 3, 5, 3, 3, 1, 1, 1, 1, false, WD_F32, WD_F32},  /* two taps, odd channels */
        {2, 2, 8, 8, 16, 16, 1, 3, 2, 0, 0, 1, true, WD_F32, WD_F32}, /* down: right and bottom */
        {2, 3, 5, 4, 12, 20, 1, 1, 1, 0, 0, 0, true, WD_F32, WD_F32}, /* 1x1 */
        {1, 4, 4, 4, 8, 8, 3, 1, 1, 0, 0, 0, true, WD_F32, WD_F32},   /* time only */
        {1, 1, 8, 8, 16, 8, 3, 3, 1, 2, 1, 1, true, WD_BF16, WD_BF16},
        {1, 1, 8, 8, 16, 8, 3, 3, 1, 2, 1, 1, true, WD_F32, WD_BF16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_matrix(WD_OP_CONV, make_conv, &cases[i], conv_tolerance);
}

int main(void)
{
    const struct CMUnitTest tests[] = {kernel_test(convolutions)};
    return kernel_tests_run(tests);
}
