/* The transformer against the reference implementation: outputs and every gradient. */
#include "harness/dit.h"

/* Relative L2 error per tensor. fp32 sums of another order differ by about 1e-6; bf16 has 8 bits,
 * and two implementations differ from each other as much as each from fp32. */
static const double forward_tolerance = 2e-5, grad_tolerance = 1e-4, bf16_tolerance = 1.5e-2;

static const char *const fixtures[] = {"dit-image", "dit-head128", "dit-video"};
enum { FIXTURES = 3 };

static void check(const char *fixture, const char *file, const char *name, const float *got,
                  int64_t count, double tolerance)
{
    char path[WD_PATH_MAX];
    snprintf(path, sizeof path, "tests/fixtures/%s/%s.safetensors", fixture, file);
    wd_tensor want = wd_test_load(path, name);
    assert_int_equal(wd_tensor_count(&want), count);
    double error = wd_test_rel_error(got, want.data, count);
    if (!(error <= tolerance))
        fail_msg("%s %s: relative error %.3g, at most %.3g is expected", fixture, name, error,
                 tolerance);
    wd_free(want.data);
}

static void fp32_agrees(void **state)
{
    (void)state;
    for (int f = 0; f < FIXTURES; f++) {
        harness h;
        harness_inputs in;
        harness_open(&h, fixtures[f], WD_F32, wd_device_open_cpu, 2, HARNESS_FLAT);
        harness_inputs_load(&in, fixtures[f]);
        const wd_dit_shape *s = &in.shape;
        int64_t pixels = s->samples * s->frames * s->height * s->width;
        int64_t out = pixels * h.config.out_channels;
        harness_results plain = harness_run(&h, &in, (harness_mode){0});
        check(fixtures[f], "out", "sample", plain.sample, out, forward_tolerance);
        harness_results_free(&plain);

        harness_results r = harness_run(&h, &in, (harness_mode){.backward = true});
        check(fixtures[f], "out", "sample", r.sample, out, forward_tolerance);
        check(fixtures[f], "out", "grad.hidden_states", r.dlatents, pixels * h.config.in_channels,
              grad_tolerance);
        check(fixtures[f], "out", "grad.encoder_hidden_states", r.dtext,
              s->texts * s->text_tokens * h.config.text_dim, grad_tolerance);
        for (int64_t i = 0; i < h.table.count; i++) {
            char name[WD_TENSOR_NAME_MAX + 8];
            if (!r.grad[i]) continue;
            snprintf(name, sizeof name, "grad.%s", h.table.spec[i].name);
            check(fixtures[f], "out", name, r.grad[i], wd_tensor_count(&h.grad[i]), grad_tolerance);
        }
        harness_results_free(&r);
        harness_inputs_free(&in);
        harness_close(&h);
    }
}

/* ---- padding ---- */

/* Keeps one row of the padding at the end of the fixtures' texts, which represents all of it. */
static void trim_text(harness_inputs *in, int64_t text_dim)
{
    wd_dit_shape *s = &in->shape;
    int64_t all = s->text_tokens, used = 0;
    for (int64_t i = 0; i < s->texts * all * text_dim; i++) {
        int64_t row = i / text_dim % all;
        if (in->text[i] != 0 && row >= used) used = row + 1;
    }
    assert_in_range(used, 1, all - 2);
    s->text_tokens = used + 1;
    s->text_repeat = all - used;
    for (int64_t t = 1; t < s->texts; t++)
        memmove(in->text + t * s->text_tokens * text_dim, in->text + t * all * text_dim,
                (size_t)(s->text_tokens * text_dim) * sizeof *in->text);
}

/* Converts the gradient of all rows to that of the remaining rows: the last row gets the sum over
 * the padding. */
static void fold_gradient(float *dtext, int64_t all, const wd_dit_shape *s, int64_t text_dim)
{
    for (int64_t t = 0; t < s->texts; t++)
        for (int64_t row = 0; row < all; row++)
            for (int64_t i = 0; i < text_dim; i++) {
                float value = dtext[(t * all + row) * text_dim + i];
                int64_t kept = row < s->text_tokens ? row : s->text_tokens - 1;
                float *to = &dtext[(t * s->text_tokens + kept) * text_dim + i];
                *to = kept == row ? value : *to + value;
            }
}

static void near(const char *fixture, const char *name, const float *got, const float *want,
                 int64_t count)
{
    double error = wd_test_rel_error(got, want, count);
    if (!(error <= 1e-5))
        fail_msg("%s %s: %.3g apart from that of padded text", fixture, name, error);
}

static void padding_may_be_left_out(void **state)
{
    (void)state;
    for (int f = 0; f < FIXTURES; f++) {
        harness h;
        harness_inputs in;
        harness_open(&h, fixtures[f], WD_F32, wd_device_open_cpu, 2, HARNESS_FLAT);
        harness_inputs_load(&in, fixtures[f]);
        const wd_dit_shape *s = &in.shape;
        const int64_t all = s->text_tokens, dim = h.config.text_dim;
        const int64_t pixels = s->samples * s->frames * s->height * s->width;
        const harness_mode modes[] = {{0}, {.backward = true}};
        harness_results want[2], got[2];
        for (int m = 0; m < 2; m++) want[m] = harness_run(&h, &in, modes[m]);
        trim_text(&in, dim);
        for (int m = 0; m < 2; m++) got[m] = harness_run(&h, &in, modes[m]);
        fold_gradient(want[1].dtext, all, s, dim);
        for (int m = 0; m < 2; m++) {
            near(fixtures[f], "sample", got[m].sample, want[m].sample,
                 pixels * h.config.out_channels);
            assert_true(got[m].totals.flops < want[m].totals.flops);
        }
        near(fixtures[f], "dlatents", got[1].dlatents, want[1].dlatents,
             pixels * h.config.in_channels);
        near(fixtures[f], "dtext", got[1].dtext, want[1].dtext, s->texts * s->text_tokens * dim);
        for (int64_t i = 0; i < h.table.count; i++)
            if (got[1].grad[i])
                near(fixtures[f], h.table.spec[i].name, got[1].grad[i], want[1].grad[i],
                     wd_tensor_count(&h.grad[i]));
        for (int m = 0; m < 2; m++) {
            harness_results_free(&want[m]);
            harness_results_free(&got[m]);
        }
        harness_inputs_free(&in);
        harness_close(&h);
    }
}

/* ---- bf16 ---- */

/* Runs forward in `dtype`; *count is set to the number of elements. */
static float *forward(const char *fixture, wd_dtype dtype, int64_t *count)
{
    harness h;
    harness_inputs in;
    harness_open(&h, fixture, dtype, wd_device_open_cpu, 2, HARNESS_FLAT);
    harness_inputs_load(&in, fixture);
    *count = in.shape.samples * in.shape.frames * in.shape.height * in.shape.width *
             h.config.out_channels;
    harness_results r = harness_run(&h, &in, (harness_mode){0});
    float *sample = r.sample;
    r.sample = NULL;
    harness_results_free(&r);
    harness_inputs_free(&in);
    harness_close(&h);
    return sample;
}

/* bf16 results are near the reference's bf16, and as far from fp32 as these, so bf16 is really
 * used. */
static void bf16_agrees(void **state)
{
    (void)state;
    for (int f = 0; f < FIXTURES; f++) {
        char path[WD_PATH_MAX];
        int64_t count;
        float *narrow = forward(fixtures[f], WD_BF16, &count);
        float *wide = forward(fixtures[f], WD_F32, &count);
        check(fixtures[f], "out_bf16", "sample", narrow, count, bf16_tolerance);
        snprintf(path, sizeof path, "tests/fixtures/%s/out_bf16.safetensors", fixtures[f]);
        wd_tensor narrow_ref = wd_test_load(path, "sample");
        snprintf(path, sizeof path, "tests/fixtures/%s/out.safetensors", fixtures[f]);
        wd_tensor wide_ref = wd_test_load(path, "sample");
        double ours = wd_test_rel_error(narrow, wide, count);
        double theirs = wd_test_rel_error(narrow_ref.data, wide_ref.data, count);
        if (!(ours / theirs >= 0.5 && ours / theirs <= 2))
            fail_msg("%s: bf16 is %.3g from fp32, the reference's %.3g", fixtures[f], ours, theirs);
        wd_free(narrow_ref.data);
        wd_free(wide_ref.data);
        wd_free(narrow);
        wd_free(wide);
    }
}

/* Gradients in bf16 have the direction of those in fp32. */
static void bf16_grads_are_near(void **state)
{
    (void)state;
    const char *fixture = "dit-image";
    const double tolerance = 0.05;
    const double bias_tolerance = 0.2; /* nearly zero: softmax ignores what all keys share */
    harness h;
    harness_inputs in;
    harness_open(&h, fixture, WD_BF16, wd_device_open_cpu, 2, HARNESS_FLAT);
    harness_inputs_load(&in, fixture);
    harness_results r = harness_run(&h, &in, (harness_mode){.backward = true});
    for (int64_t i = 0; i < h.table.count; i++) {
        char name[WD_TENSOR_NAME_MAX + 8];
        snprintf(name, sizeof name, "grad.%s", h.table.spec[i].name);
        check(fixture, "out", name, r.grad[i], wd_tensor_count(&h.grad[i]),
              strstr(name, "to_k.bias") ? bias_tolerance : tolerance);
    }
    int64_t pixels = in.shape.samples * in.shape.frames * in.shape.height * in.shape.width;
    check(fixture, "out", "grad.hidden_states", r.dlatents, pixels * h.config.in_channels,
          tolerance);
    harness_results_free(&r);
    harness_inputs_free(&in);
    harness_close(&h);
}

/* A picture with more positions than rope_max_seq_len is refused. */
static void too_large_is_refused(void **state)
{
    (void)state;
    wd_err err;
    harness h;
    wd_dit_rope rope;
    harness_open(&h, "dit-image", WD_F32, wd_device_open_cpu, 1, HARNESS_FLAT);
    wd_dit_shape shape = {
        .samples = 1, .texts = 1, .frames = 1, .height = 4, .width = 2050, .text_tokens = 1};
    wd_test_refused(wd_dit_rope_open(&rope, &h.config, &shape, h.queue, &err), &err,
                    WD_INVALID_ARGUMENT, "1024");
    harness_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_agrees),          cmocka_unit_test(padding_may_be_left_out),
        cmocka_unit_test(bf16_agrees),          cmocka_unit_test(bf16_grads_are_near),
        cmocka_unit_test(too_large_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
