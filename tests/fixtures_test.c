/* Every network against values of PyTorch and diffusers (tests/fixtures), by the library's jobs in
 * one process. Components run on one device, which is opened once. Each fixture is a test of its
 * own, which prints the error of every tensor. WD_TEST_DEVICE names the device, "cpu" or "cuda:0".
 */
#include "program.h"

#include "api/jobs/forward.h"
#include "dev/cuda.h"
#include "wandistiller.h"

/* What must hold, relative L2 per tensor; the reason of each is in src/model/dit/dit_test.c. */
static const double tolerance_f32 = 2e-5, tolerance_grad = 1e-4, tolerance_bf16 = 1.5e-2;
/* fp32 over ten guided steps. */
static const double tolerance_trace = 1e-3;

typedef struct fixture {
    const char *test;      /* its name */
    const char *folder;    /* below tests/fixtures */
    const char *component; /* of wd_forward_options */
    const char *tensor;    /* that is compared; NULL: all of the file */
    bool grad;
} fixture;

static const fixture in_f32[] = {
    {"dit-image, fp32, with gradients", "dit-image", "transformer", NULL, true},
    {"dit-head128, fp32, with gradients", "dit-head128", "transformer", NULL, true},
    {"dit-video, fp32, with gradients", "dit-video", "transformer", NULL, true},
    {"umt5, fp32", "umt5", "text_encoder", NULL, false},
    {"vae-2.1, decoder, fp32", "vae-2.1", "vae_decoder", "sample", false},
    {"vae-2.1, encoder, fp32", "vae-2.1", "vae_encoder", "encoded_mean", false},
    {"vae-2.1-video, decoder, fp32", "vae-2.1-video", "vae_decoder", "sample", false},
    {"vae-2.1-video, encoder, fp32", "vae-2.1-video", "vae_encoder", "encoded_mean", false},
    {"vae-2.2, decoder, fp32", "vae-2.2", "vae_decoder", "sample", false},
    {"vae-2.2, encoder, fp32", "vae-2.2", "vae_encoder", "encoded_mean", false},
};

static const fixture in_bf16[] = {
    {"dit-image, bf16", "dit-image", "transformer", "sample", false},
    {"dit-head128, bf16", "dit-head128", "transformer", "sample", false},
    {"dit-video, bf16", "dit-video", "transformer", "sample", false},
    {"umt5, bf16", "umt5", "text_encoder", "last_hidden_state", false},
};

enum { F32_COUNT = sizeof in_f32 / sizeof *in_f32, BF16_COUNT = sizeof in_bf16 / sizeof *in_bf16 };

/* "<source folder>/<path>"; the text lives for the next 15 calls. */
static const char *source_path(const char *format, const char *name)
{
    static char path[16][WD_PATH_MAX];
    static int next;
    char below[256], *out = path[next++ % 16];
    wd_err err;
    snprintf(below, sizeof below, format, name);
    wd_test_ok(wd_path_join(out, wd_test_source(), below, &err), &err);
    return out;
}

/* What components run on, from the first one on. */
static wd_run device;

static void run(const fixture *f, const char *dtype)
{
    wd_err err;
    wd_forward_options options = wd_forward_defaults();
    options.model = source_path("tests/fixtures/%s", f->folder);
    options.component = f->component;
    options.in = source_path("tests/fixtures/%s/in.safetensors", f->folder);
    options.out = wd_test_path("out.safetensors");
    options.grad = f->grad;
    options.dtype = dtype;
    options.device = wd_test_device();
    if (!device.device)
        wd_test_ok(wd_run_open(&device, WD_JOB_FORWARD, &options, options.device, 0, &err), &err);
    wd_test_ok(wd__forward_on(&device, &options, &err), &err);
}

/* Compares a tensor of what was computed with that of a file of the fixture, and prints the error.
 */
static double compare(const fixture *f, const char *file, const char *tensor, double tolerance)
{
    char expected[128];
    snprintf(expected, sizeof expected, "tests/fixtures/%s/%s", f->folder, file);
    const double error =
        wd_test_compare(wd_test_path("out.safetensors"), expected, tensor, INFINITY);
    printf("    %-40s relative error %.3g of at most %.3g\n", tensor, error, tolerance);
    return error;
}

static void matches_in_f32(void **state)
{
    const fixture *f = *state;
    wd_err err;
    wd_safetensors *want, *found;
    int bad = 0;
    run(f, "float32");
    if (f->tensor) {
        assert_true(compare(f, "out.safetensors", f->tensor, tolerance_f32) <= tolerance_f32);
        return;
    }
    const char *expected = source_path("tests/fixtures/%s/out.safetensors", f->folder);
    wd_test_ok(wd_safetensors_open(&want, expected, &err), &err);
    wd_test_ok(wd_safetensors_open(&found, wd_test_path("out.safetensors"), &err), &err);
    assert_int_equal(wd_safetensors_count(want), wd_safetensors_count(found));
    for (int64_t i = 0; i < wd_safetensors_count(want); i++) {
        const char *name = wd_safetensors_at(want, i)->name;
        const double most = strncmp(name, "grad.", 5) ? tolerance_f32 : tolerance_grad;
        bad += !(compare(f, "out.safetensors", name, most) <= most);
    }
    wd_safetensors_close(want);
    wd_safetensors_close(found);
    assert_int_equal(bad, 0);
}

/* bf16 lies as far from our fp32 as the reference's bf16 from its fp32: it is really used. */
static void matches_in_bf16(void **state)
{
    const fixture *f = *state;
    char path[2][128];
    run(f, "bfloat16");
    const double error = compare(f, "out_bf16.safetensors", f->tensor, tolerance_bf16);
    const double ours = compare(f, "out.safetensors", f->tensor, INFINITY);
    snprintf(path[0], sizeof path[0], "tests/fixtures/%s/out_bf16.safetensors", f->folder);
    snprintf(path[1], sizeof path[1], "tests/fixtures/%s/out.safetensors", f->folder);
    wd_tensor a = wd_test_load(path[0], f->tensor), b = wd_test_load(path[1], f->tensor);
    const double theirs = wd_test_rel_error(a.data, b.data, wd_tensor_count(&a));
    wd_free(a.data);
    wd_free(b.data);
    assert_true(error <= tolerance_bf16);
    if (ours < 0.5 * theirs || ours > 2 * theirs)
        fail_msg("%s: bf16 lies %.3g from fp32, the reference's %.3g", f->folder, ours, theirs);
}

static int close_device(void **state)
{
    (void)state;
    wd_run_close(&device);
    return 0;
}

/* Tokens, embeds and latents of each step of diffusers' pipeline on wan-tiny. */
static void every_step_is_that_of_diffusers(void **state)
{
    close_device(state);
    static const fixture pipeline = {.folder = "pipeline"};
    static const char *const prompts[] = {
        "red apple, blue background",
        "  Cr\u00e8me   br\u00fbl\u00e9e &amp; a \t\u201cfox\u201d, green background ",
        "penguin, white background",
    };
    wd_err err;
    wd_safetensors *set;
    wd_sample_options options = wd_sample_defaults();
    options.dtype = "float32";
    options.model = source_path("models/%s", "wan-tiny");
    memcpy(options.prompt.item, prompts, sizeof prompts);
    options.prompt.count = 3;
    options.negative_prompt = "";
    options.steps = 10;
    options.guidance_scale = 4;
    options.guidance_scale_2 = 3;
    options.height = options.width = 64;
    options.max_sequence_length = 24;
    options.device = wd_test_device();
    options.latents = source_path("tests/fixtures/%s/in.safetensors", "pipeline");
    options.trace = wd_test_path("out.safetensors");
    options.out = wd_test_path("pictures");
    wd_test_ok(wd_sample(&options, &err), &err);
    static const char *const tensors[] = {"prompt_embeds", "negative_prompt_embeds", "sample"};
    int bad = 0;
    for (int i = 0; i < 14; i++) {
        char name[32];
        snprintf(name, sizeof name, "latents.%d", i - 3);
        bad += !(compare(&pipeline, "out.safetensors", i < 3 ? tensors[i] : name,
                         tolerance_trace) <= tolerance_trace);
    }
    assert_int_equal(bad, 0);
    wd_test_ok(wd_safetensors_open(&set, options.trace, &err), &err);
    const wd_tensor ids = wd_safetensors_find(set, "input_ids")->tensor;
    wd_tensor want = wd_test_load("tests/fixtures/pipeline/out.safetensors", "input_ids");
    assert_int_equal(ids.dtype, want.dtype);
    assert_memory_equal(ids.data, want.data, wd_tensor_bytes(&want));
    wd_free(want.data);
    wd_safetensors_close(set);
}

int main(void)
{
    wd_err err;
    int number;
    if (sscanf(wd_test_device(), "cuda:%d", &number) == 1 &&
        wd_cuda_require(number, &err) != WD_OK) {
        printf("not tested here: fixtures on a GPU: %s\n", err.message);
        return 77;
    }
    struct CMUnitTest tests[F32_COUNT + BF16_COUNT + 1];
    int count = 0;
    for (int i = 0; i < F32_COUNT; i++)
        tests[count++] = (struct CMUnitTest){.name = in_f32[i].test,
                                             .test_func = matches_in_f32,
                                             .initial_state = (void *)(uintptr_t)&in_f32[i]};
    for (int i = 0; i < BF16_COUNT; i++)
        tests[count++] = (struct CMUnitTest){.name = in_bf16[i].test,
                                             .test_func = matches_in_bf16,
                                             .initial_state = (void *)(uintptr_t)&in_bf16[i]};
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(every_step_is_that_of_diffusers);
    return cmocka_run_group_tests(tests, NULL, close_device);
}
