/* The transformer's results have the same bits with checkpointing, other samples in the batch, one
 * text shared by all, a freed context, another layout of weights, other numbers of threads, and on
 * the guard device. A run uses exactly the memory that a dry run finds. */
#include "harness/dit.h"

#include "test_preset.h"

static const char *const fixture = "dit-image";
static const wd_dtype dtypes[] = {WD_F32, WD_BF16};

static int64_t pixels_of(const wd_dit_shape *s)
{
    return s->frames * s->height * s->width;
}

static void same(const float *a, const float *b, int64_t count, const char *what)
{
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a))
            fail_msg("%s: element %lld of %lld is %.9g and %.9g", what, (long long)i,
                     (long long)count, a[i], b[i]);
}

static void same_results(const harness *h, const harness_inputs *in, const harness_results *a,
                         const harness_results *b)
{
    const wd_dit_shape *s = &in->shape;
    int64_t pixels = s->samples * pixels_of(s);
    same(a->sample, b->sample, pixels * h->config.out_channels, "sample");
    if (!a->count) return;
    same(a->dlatents, b->dlatents, pixels * h->config.in_channels, "dlatents");
    same(a->dtext, b->dtext, s->texts * s->text_tokens * h->config.text_dim, "dtext");
    for (int64_t i = 0; i < a->count; i++)
        if (a->grad[i])
            same(a->grad[i], b->grad[i], wd_tensor_count(&h->grad[i]), h->table.spec[i].name);
}

/* Opens the fixture on two devices, and compares a whole training pass. */
static void compare_devices(wd_dtype dtype, harness_opener *opener, int threads)
{
    harness a, b;
    harness_inputs in;
    const harness_mode mode = {.backward = true};
    harness_inputs_load(&in, fixture);
    harness_open(&a, fixture, dtype, wd_device_open_cpu, 2, HARNESS_FLAT);
    harness_open(&b, fixture, dtype, opener, threads, HARNESS_FLAT);
    harness_results ra = harness_run(&a, &in, mode), rb = harness_run(&b, &in, mode);
    same_results(&a, &in, &ra, &rb);
    harness_results_free(&ra);
    harness_results_free(&rb);
    harness_close(&a);
    harness_close(&b);
    harness_inputs_free(&in);
}

static void only_kernels_touch_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) compare_devices(dtypes[i], wd_device_open_guard, 2);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        compare_devices(dtypes[i], wd_device_open_cpu, 1);
        compare_devices(dtypes[i], wd_device_open_cpu, 3);
    }
}

static void checkpointing_changes_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        harness h;
        harness_inputs in;
        harness_inputs_load(&in, fixture);
        harness_open(&h, fixture, dtypes[i], wd_device_open_cpu, 2, HARNESS_FLAT);
        harness_results plain = harness_run(&h, &in, (harness_mode){.backward = true});
        harness_results again =
            harness_run(&h, &in, (harness_mode){.backward = true, .checkpoint = true});
        same_results(&h, &in, &plain, &again);
        assert_true(again.arena_bytes < plain.arena_bytes);
        assert_true(again.totals.flops > plain.totals.flops);
        harness_results_free(&plain);
        harness_results_free(&again);
        harness_close(&h);
        harness_inputs_free(&in);
    }
}

/* Sample `i` of the inputs alone; borrowed. */
static harness_inputs one_sample(const harness *h, const harness_inputs *in, int64_t i)
{
    harness_inputs one = *in;
    one.shape.samples = one.shape.texts = 1;
    one.latents += i * h->config.in_channels * pixels_of(&in->shape);
    one.grad_sample += i * h->config.out_channels * pixels_of(&in->shape);
    one.timestep += i;
    one.text += i * in->shape.text_tokens * h->config.text_dim;
    return one;
}

static void samples_are_independent(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        harness h;
        harness_inputs in;
        harness_inputs_load(&in, fixture);
        harness_open(&h, fixture, dtypes[d], wd_device_open_cpu, 2, HARNESS_FLAT);
        harness_results both = harness_run(&h, &in, (harness_mode){.backward = true});
        harness_results all = harness_run(&h, &in, (harness_mode){0});
        int64_t out = h.config.out_channels * pixels_of(&in.shape);
        int64_t latents = h.config.in_channels * pixels_of(&in.shape);
        int64_t text = in.shape.text_tokens * h.config.text_dim;
        for (int64_t i = 0; i < in.shape.samples; i++) {
            harness_inputs one = one_sample(&h, &in, i);
            harness_results r = harness_run(&h, &one, (harness_mode){.backward = true});
            harness_results f = harness_run(&h, &one, (harness_mode){0});
            same(r.sample, both.sample + i * out, out, "sample, kept");
            same(f.sample, all.sample + i * out, out, "sample");
            same(r.dlatents, both.dlatents + i * latents, latents, "dlatents");
            same(r.dtext, both.dtext + i * text, text, "dtext");
            harness_results_free(&r);
            harness_results_free(&f);
        }
        harness_results_free(&both);
        harness_results_free(&all);
        harness_close(&h);
        harness_inputs_free(&in);
    }
}

static void shared_text_is_repeated_text(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        harness h;
        harness_inputs in;
        harness_inputs_load(&in, fixture);
        harness_open(&h, fixture, dtypes[d], wd_device_open_cpu, 2, HARNESS_FLAT);
        int64_t text = in.shape.text_tokens * h.config.text_dim;
        for (int64_t i = 1; i < in.shape.samples; i++)
            memcpy(in.text + i * text, in.text, (size_t)text * sizeof *in.text);
        harness_results repeated = harness_run(&h, &in, (harness_mode){0});
        in.shape.texts = 1;
        harness_results shared = harness_run(&h, &in, (harness_mode){0});
        same_results(&h, &in, &repeated, &shared);
        assert_true(shared.totals.flops < repeated.totals.flops);
        harness_results_free(&repeated);
        harness_results_free(&shared);
        harness_close(&h);
        harness_inputs_free(&in);
    }
}

/* Q, K and V may be one product or three. */
static void layout_changes_nothing(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        harness flat, gaps;
        harness_inputs in;
        harness_inputs_load(&in, fixture);
        harness_open(&flat, fixture, dtypes[d], wd_device_open_cpu, 2, HARNESS_FLAT);
        harness_open(&gaps, fixture, dtypes[d], wd_device_open_cpu, 2, HARNESS_GAPS);
        harness_results a = harness_run(&flat, &in, (harness_mode){0});
        harness_results b = harness_run(&gaps, &in, (harness_mode){0});
        same_results(&flat, &in, &a, &b);
        assert_true(a.totals.launches < b.totals.launches);
        harness_results_free(&a);
        harness_results_free(&b);
        /* Backward adds the gradients of Q's, K's and V's common input in another order. */
        a = harness_run(&flat, &in, (harness_mode){.backward = true});
        b = harness_run(&gaps, &in, (harness_mode){.backward = true});
        double tolerance = dtypes[d] == WD_F32 ? 1e-5 : 0.02;
        int64_t count = in.shape.samples * pixels_of(&in.shape) * flat.config.in_channels;
        assert_true(wd_test_rel_error(a.dlatents, b.dlatents, count) < tolerance);
        harness_results_free(&a);
        harness_results_free(&b);
        harness_close(&flat);
        harness_close(&gaps);
        harness_inputs_free(&in);
    }
}

/* A run uses the arena and the workspace that a dry run says, to the byte, and allocates nothing.
 */
static void dry_run_is_exact(void **state)
{
    (void)state;
    const harness_mode modes[] = {{0}, {.backward = true}, {.backward = true, .checkpoint = true}};
    for (int m = 0; m < 3; m++)
        for (int d = 0; d < 2; d++) {
            harness h;
            harness_inputs in;
            harness_inputs_load(&in, fixture);
            harness_open(&h, fixture, dtypes[d], wd_device_open_cpu, 2, HARNESS_FLAT);
            harness_results plan = harness_plan(&h, &in, modes[m]);
            harness_results run = harness_run(&h, &in, modes[m]);
            assert_int_equal(run.arena_bytes, plan.arena_bytes);
            assert_int_equal(run.workspace_bytes, plan.workspace_bytes);
            assert_int_equal(run.totals.launches, plan.totals.launches);
            assert_true(run.totals.flops == plan.totals.flops);
            assert_int_equal(run.allocs, 0);
            harness_results_free(&plan);
            harness_results_free(&run);
            harness_close(&h);
            harness_inputs_free(&in);
        }
}

/* A pass saves no more per block than model/dit/dit.h says: with the 1.3B model with 8 blocks, at
 * 512x512 with 512 text tokens in fp32, training needs less than 1.3 GB beside weights, gradients
 * and moments. Measured by a dry run. */
static void activations_are_few(void **state)
{
    (void)state;
    wd_err err;
    wd_device *target, *dry;
    harness h;
    wd_dit_config config = wd_test_preset("wan2.1-1.3b").dit;
    config.layers = 8;
    const harness_inputs in = {
        .shape = {
            .samples = 1, .texts = 1, .frames = 1, .height = 64, .width = 64, .text_tokens = 512}};
    wd_test_ok(wd_device_open_cpu(&target, 2, &err), &err);
    wd_test_ok(wd_device_open_dry(&dry, target, &err), &err);
    harness_open_empty(&h, &config, WD_F32, dry, HARNESS_FLAT);
    const harness_mode mode = {.backward = true, .arena_bytes = SIZE_MAX};
    const harness_mode checkpoint = {.backward = true, .checkpoint = true, .arena_bytes = SIZE_MAX};
    harness_results plain = harness_run(&h, &in, mode);
    harness_results less = harness_run(&h, &in, checkpoint);
    print_message("1.3B, 8 blocks: %.0f MB of activations, %.0f MB checkpointed, workspace %.0f "
                  "MB, %lld launches\n",
                  (double)plain.arena_bytes / 1e6, (double)less.arena_bytes / 1e6,
                  (double)plain.workspace_bytes / 1e6, (long long)plain.totals.launches);
    assert_true(plain.arena_bytes + plain.workspace_bytes < 1300000000);
    assert_true(less.arena_bytes < plain.arena_bytes / 3);
    harness_results_free(&plain);
    harness_results_free(&less);
    harness_close(&h);
    wd_device_close(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_kernels_touch_memory),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(checkpointing_changes_nothing),
        cmocka_unit_test(samples_are_independent),
        cmocka_unit_test(shared_text_is_repeated_text),
        cmocka_unit_test(layout_changes_nothing),
        cmocka_unit_test(dry_run_is_exact),
        cmocka_unit_test(activations_are_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
