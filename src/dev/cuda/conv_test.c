/* Convolutions by cuDNN, on the stand-in, against plain C; which plans are made, and when. */
#include "testing.h"

#include <stdlib.h>

#include "core/log.h"
#include "dev/cuda/conv_graph.h"
#include "kernels/kernels_check.h"
#include "standin/immediate_gpu.h"

/* fp32: rounded once more when the bias is added. */
static const tolerance conv_tolerance = {1e-6, 1e-6};

static wd_cuda_conv *open_conv(void)
{
    wd_cuda_conv *c;
    wd_err err;
    wd_test_ok(wd__cuda_conv_open(&c, wd_standin_gpu(), &err), &err);
    return c;
}

static void close_conv(wd_cuda_conv *c)
{
    wd__cuda_conv_close(c);
    assert_int_equal(wd_the_standin_asked.descriptors, 0);
}

typedef struct form {
    int64_t samples, frames, height, width, ci, co, kt, side, stride, tap0, before, after;
    bool bias;
    wd_dtype type, w_type;
} form;

static void make_conv(world *w, void *out, const void *context)
{
    const form *f = context;
    wd_conv_args *a = out;
    *a = (wd_conv_args){.type = f->type,
                        .w_type = f->w_type,
                        .samples = f->samples,
                        .in = {f->frames, f->height, f->width},
                        .ci = f->ci,
                        .co = f->co,
                        .kernel = {f->kt, f->side, f->side},
                        .stride = {1, f->stride, f->stride},
                        .pad_before = {0, f->before, f->before},
                        .pad_after = {0, f->after, f->after},
                        .tap0 = f->tap0,
                        .tap1 = f->kt};
    a->out[0] = f->frames - (f->kt - f->tap0) + 1;
    for (int d = 1; d < 3; d++)
        a->out[d] = (a->in[d] + f->before + f->after - f->side) / f->stride + 1;
    a->y = out_array(w, f->type, f->samples * a->out[0] * a->out[1] * a->out[2] * f->co, f->co,
                     ORDINARY);
    a->x = make_array(w, f->type, f->samples * f->frames * f->height * f->width * f->ci, ORDINARY);
    a->w = make_array(w, f->w_type, f->co * f->ci * f->kt * f->side * f->side, ORDINARY);
    a->bias = f->bias ? make_array(w, f->w_type, f->co, ORDINARY) : NULL;
}

static wd_status launch(wd_cuda_conv *c, const wd_conv_args *args, wd_err *err)
{
    size_t bytes = wd__cuda_conv_workspace(c, args);
    assert_true(wd__cuda_conv_can(c, args));
    wd_cuda_work work = {.workspace = aligned_alloc(256, (bytes + 255) / 256 * 256),
                         .workspace_bytes = bytes};
    assert_non_null(work.workspace);
    wd_status status = wd__cuda_conv_launch(c, &work, args, err);
    free(work.workspace);
    return status;
}

static void check(wd_cuda_conv *c, form f)
{
    wd_err err;
    wd_conv_args args, plain;
    world got = {0}, expected = {0};
    make_conv(&got, &args, &f);
    make_conv(&expected, &plain, &f);
    wd_ref_conv(&plain, NULL);
    wd_test_ok(launch(c, &args, &err), &err);
    compare_array(&got.array[0], &expected.array[0], "convolution", 0, conv_tolerance);
    for (int i = 1; i < got.arrays; i++) assert_true(same_bits(&got.array[i], &expected.array[i]));
    free_world(&got);
    free_world(&expected);
}

static void convolutions(void **state)
{
    (void)state;
    static const form forms[] = {
        {1, 1, 5, 7, 16, 8, 1, 1, 1, 0, 0, 0, true, WD_F32, WD_F32},   /* one tap */
        {2, 1, 6, 5, 3, 12, 1, 3, 1, 0, 1, 1, true, WD_F32, WD_F32},   /* pictures */
        {1, 1, 9, 8, 8, 4, 1, 3, 2, 0, 0, 1, true, WD_F32, WD_F32},    /* a picture halved */
        {2, 1, 6, 6, 8, 8, 3, 3, 1, 2, 1, 1, true, WD_F32, WD_F32},    /* the last tap in time */
        {1, 4, 6, 5, 8, 4, 3, 3, 1, 0, 1, 1, false, WD_F32, WD_F32},   /* all three axes */
        {1, 3, 6, 5, 8, 4, 3, 3, 1, 1, 1, 1, true, WD_F32, WD_F32},    /* two taps in time */
        {2, 3, 4, 4, 8, 8, 3, 1, 1, 0, 0, 0, true, WD_F32, WD_F32},    /* time alone */
        {1, 2, 6, 6, 16, 16, 1, 3, 1, 0, 1, 1, true, WD_F32, WD_BF16}, /* frames as pictures */
    };
    wd_cuda_conv *c = open_conv();
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        form f = forms[i];
        check(c, f);
        f.w_type = WD_BF16;
        check(c, f);
        f.type = WD_BF16;
        check(c, f);
    }
    close_conv(c);
}

static void plans_are_made_once(void **state)
{
    (void)state;
    const form f = {3, 1, 6, 5, 8, 8, 1, 3, 1, 0, 1, 1, true, WD_F32, WD_F32};
    wd_cuda_conv *c = open_conv();
    for (int step = 0; step < 3; step++) {
        int64_t plans = wd_the_standin_asked.plans, allocs = wd__alloc_count();
        check(c, f);
        assert_int_equal(wd_the_standin_asked.plans - plans, step ? 0 : 1);
        if (step) assert_int_equal(wd__alloc_count(), allocs);
    }
    close_conv(c);
}

static char warning[2048];
static int warnings;

static void keep_warning(void *context, wd_log_level level, const char *message)
{
    (void)context, (void)level;
    warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

/* What cuDNN refuses our own kernel computes, whatever the number of pictures. */
static void own_kernel_takes_over(void **state)
{
    (void)state;
    form f = {2, 1, 6, 5, 8, 8, 1, 3, 1, 0, 1, 1, true, WD_F32, WD_F32};
    char text[512];
    wd_cuda_conv *c = open_conv();
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    warnings = 0;
    wd_the_standin_faults.cudnn_none = true;
    check(c, f);
    wd_the_standin_faults.cudnn_none = false;
    f.samples = 3;
    check(c, f);
    assert_int_equal(wd_the_standin_asked.runs, 0);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "a convolution of 8 to 8 channels, 1 x 3 x 3 taps, of 1 x 1 x "
                                    "6 x 5, F32"));
    f.height = 7;
    wd_the_standin_faults.cudnn_no_many = true; /* picture by picture */
    check(c, f);
    f.type = f.w_type = WD_BF16;
    check(c, f);
    assert_int_equal(wd_the_standin_asked.runs, 3 + 3);
    assert_int_equal(warnings, 1);
    assert_true(wd__cuda_conv_describe(c, 0, text, sizeof text));
    assert_non_null(strstr(text, "of 2 x 1 x 6 x 5, F32: a kernel of this program"));
    assert_true(wd__cuda_conv_describe(c, 2, text, sizeof text));
    assert_non_null(strstr(text, "of 3 x 1 x 7 x 5, F32: engine 6, knobs 24=7, "));
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    close_conv(c);
}

static void refusals_are_errors(void **state)
{
    (void)state;
    const form f = {1, 1, 6, 5, 8, 8, 1, 3, 1, 0, 1, 1, true, WD_BF16, WD_BF16};
    wd_err err;
    wd_conv_args args;
    world w = {0};
    wd_cuda_conv *c = open_conv();
    make_conv(&w, &args, &f);
    wd_the_standin_faults.cudnn_fail_run = 1;
    wd_test_refused(launch(c, &args, &err), &err, WD_INTERNAL,
                    "BF16 with a bias: engine 6, knobs 24=7: cuDNN 91900 failed to run it");
    wd_test_ok(launch(c, &args, &err), &err);
    wd_conv_args no = args;
    no.bias = (const char *)no.bias + 2; /* part of the graph, which wants it at 16 bytes */
    assert_false(wd__cuda_conv_can(c, &no));
    no = args;
    no.type = WD_F16;
    assert_false(wd__cuda_conv_can(c, &no));
    no.type = WD_BF16;
    no.w_type = WD_F32;
    assert_false(wd__cuda_conv_can(c, &no));
    no = args;
    no.tap1 = no.kernel[0] + 1;
    assert_false(wd__cuda_conv_can(c, &no));
    free_world(&w);
    close_conv(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(plans_are_made_once),
        cmocka_unit_test(own_kernel_takes_over),
        cmocka_unit_test(refusals_are_errors),
    };
    return cmocka_run_group_tests_name("conv", tests, NULL, NULL);
}
