/* The VAE against diffusers' own outputs (tests/fixtures/vae-*): both layouts, pictures and video,
 * decode and encode, on the guarded device; and its memory compared with wd_vae_decode_bytes. */
#include "test_preset.h"
#include "failing.h"

#include "core/random.h"
#include "io/json/json.h"
#include "model/vae/vae_pass.h"

/* Relative L2 error that the project promises in fp32. */
static const double tolerance = 2e-5;

/* A VAE with what it borrows. */
typedef struct session {
    wd_vae_config config;
    wd_device *device;
    wd_queue *queue;
    wd_safetensors *weights;
    wd_vae *vae;
} session;

static session open_session(const char *folder, wd_vae_part part, bool guard)
{
    session s;
    wd_err err;
    char path[WD_PATH_MAX];
    json_t *json;
    snprintf(path, sizeof path, "%s/%s/vae/config.json", WD_SOURCE_DIR, folder);
    wd_test_ok(wd_json_load(&json, path, &err), &err);
    wd_test_ok(wd_vae_config_read(&s.config, json, path, &err), &err);
    json_decref(json);
    snprintf(path, sizeof path, "%s/%s/vae", WD_SOURCE_DIR, folder);
    wd_test_ok(wd_safetensors_open_stem(&s.weights, path, "diffusion_pytorch_model", &err), &err);
    wd_test_ok((guard ? wd_device_open_guard : wd_device_open_cpu)(&s.device, 0, &err), &err);
    wd_test_ok(wd_queue_open(&s.queue, s.device, &err), &err);
    wd_test_ok(wd_vae_open(&s.vae, &s.config, s.weights, part, s.queue, &err), &err);
    return s;
}

static void close_session(session *s)
{
    wd_vae_close(s->vae);
    wd_safetensors_close(s->weights);
    wd_queue_close(s->queue);
    assert_int_equal(wd_device_bytes(s->device), 0);
    wd_device_close(s->device);
}

static wd_tensor load(const char *folder, const char *file, const char *name)
{
    char path[WD_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return wd_test_load(path, name);
}

enum { BANDS = -1 }; /* as a number of bytes: bands of the default size */

/* Decodes latents of <folder>/in<suffix> and compares with out<suffix>. */
static void check_decode(const char *folder, const char *suffix, int64_t band_bytes)
{
    char in[64], out[64];
    session s = open_session(folder, WD_VAE_DECODER, true);
    snprintf(in, sizeof in, "in%s.safetensors", suffix);
    snprintf(out, sizeof out, "out%s.safetensors", suffix);
    if (band_bytes != BANDS) wd__vae_set_band_bytes(s.vae, band_bytes);
    wd_tensor z = load(folder, in, "latents"), want = load(folder, out, "sample");
    int64_t count = wd_tensor_count(&want);
    float *image = calloc((size_t)count, sizeof *image);
    wd_err err;
    wd_test_ok(wd_vae_decode(s.vae, image, z.data, z.dim, &err), &err);
    double error = wd_test_rel_error(image, want.data, count);
    print_message("%s%s: decode %.2g\n", folder, suffix, error);
    assert_true(error <= tolerance);
    close_session(&s);
    free(image);
    wd_free(z.data);
    wd_free(want.data);
}

static void check_encode(const char *folder, const char *suffix, int64_t band_bytes)
{
    char in[64], out[64];
    session s = open_session(folder, WD_VAE_ENCODER, true);
    snprintf(in, sizeof in, "in%s.safetensors", suffix);
    snprintf(out, sizeof out, "out%s.safetensors", suffix);
    if (band_bytes != BANDS) wd__vae_set_band_bytes(s.vae, band_bytes);
    wd_tensor image = load(folder, in, "image"), want = load(folder, out, "encoded_mean");
    int64_t count = wd_tensor_count(&want);
    float *mean = calloc((size_t)count, sizeof *mean);
    wd_err err;
    wd_test_ok(wd_vae_encode(s.vae, mean, image.data, image.dim, &err), &err);
    double error = wd_test_rel_error(mean, want.data, count);
    print_message("%s%s: encode %.2g\n", folder, suffix, error);
    assert_true(error <= tolerance);
    close_session(&s);
    free(mean);
    wd_free(image.data);
    wd_free(want.data);
}

static void pictures(void **state)
{
    (void)state;
    check_decode("tests/fixtures/vae-2.1", "", BANDS);
    check_encode("tests/fixtures/vae-2.1", "", BANDS);
    check_decode("tests/fixtures/vae-2.2", "", BANDS);
    check_encode("tests/fixtures/vae-2.2", "", BANDS);
}

/* Three latent frames; ten frames, of which the tenth is dropped. */
static void videos(void **state)
{
    (void)state;
    check_decode("tests/fixtures/vae-2.1-video", "", BANDS);
    check_encode("tests/fixtures/vae-2.1-video", "", BANDS);
    check_decode("tests/fixtures/vae-2.1-video", "_video", BANDS);
    check_encode("tests/fixtures/vae-2.1-video", "_video", BANDS);
    check_decode("tests/fixtures/vae-2.2", "_video", BANDS);
    check_encode("tests/fixtures/vae-2.2", "_video", BANDS);
}

/* Pictures and videos in bands of eight rows. */
static void bands(void **state)
{
    (void)state;
    check_decode("tests/fixtures/vae-2.1", "", 1);
    check_encode("tests/fixtures/vae-2.1", "", 1);
    check_decode("tests/fixtures/vae-2.2", "_video", 1);
    check_encode("tests/fixtures/vae-2.2", "_video", 1);
}

/* wan-tiny's last latents become the pictures of the reference's pipeline, in [0, 1]; F16 weights.
 */
static void pipeline(void **state)
{
    (void)state;
    const char *folder = "tests/fixtures/pipeline";
    session s = open_session("models/wan-tiny", WD_VAE_DECODER, true);
    wd_tensor z = load(folder, "out.safetensors", "latents.10");
    wd_tensor want = load(folder, "out.safetensors", "sample");
    int64_t count = wd_tensor_count(&want);
    float *image = calloc((size_t)count, sizeof *image);
    wd_err err;
    wd_vae_unnormalize(z.data, &s.config, z.dim);
    wd_test_ok(wd_vae_decode(s.vae, image, z.data, z.dim, &err), &err);
    for (int64_t i = 0; i < count; i++) image[i] = image[i] * 0.5f + 0.5f;
    double error = wd_test_rel_error(image, want.data, count);
    print_message("wan-tiny: %.2g\n", error);
    assert_true(error <= tolerance);
    close_session(&s);
    free(image);
    wd_free(z.data);
    wd_free(want.data);
}

/* A picture's bits do not depend on the ones beside it. */
static void batch_independent(void **state)
{
    (void)state;
    session s = open_session("models/wan-tiny", WD_VAE_DECODER, false);
    wd_tensor z = load("tests/fixtures/pipeline", "out.safetensors", "latents.10");
    const int64_t all[5] = {3, 16, 1, 8, 8}, one[5] = {1, 16, 1, 8, 8};
    enum { IMAGE = 3 * 64 * 64 };
    static float together[3 * IMAGE], alone[IMAGE];
    wd_err err;
    wd_test_ok(wd_vae_decode(s.vae, together, z.data, all, &err), &err);
    for (int i = 0; i < 3; i++) {
        wd_test_ok(wd_vae_decode(s.vae, alone, (float *)z.data + i * 16 * 64, one, &err), &err);
        assert_memory_equal(alone, together + i * IMAGE, sizeof alone);
    }
    close_session(&s);
    wd_free(z.data);
}

/* The pool's peak equals wd_vae_decode_bytes. */
static void check_bytes(const char *folder, const int64_t dim[5])
{
    session s = open_session(folder, WD_VAE_DECODER, false);
    int64_t scale = s.config.scale_factor_spatial, frames = 4 * (dim[2] - 1) + 1;
    float *z = calloc((size_t)(dim[0] * dim[1] * dim[2] * dim[3] * dim[4]), sizeof *z);
    float *image = calloc((size_t)(dim[0] * 3 * frames * dim[3] * dim[4] * scale * scale), 4);
    size_t before = wd_device_bytes(s.device);
    wd_err err;
    wd_test_ok(wd_vae_decode(s.vae, image, z, dim, &err), &err);
    assert_int_equal(wd_device_bytes_peak(s.device), before + wd_queue_workspace_bytes(s.queue) +
                                                         wd_vae_decode_bytes(&s.config, dim));
    free(z);
    free(image);
    close_session(&s);
}

static void bytes(void **state)
{
    (void)state;
    check_bytes("tests/fixtures/vae-2.1", (int64_t[]){3, 16, 1, 8, 4});
    check_bytes("tests/fixtures/vae-2.2", (int64_t[]){1, 12, 3, 2, 4});
}

/* One picture of Wan 2.1's own size at 512 x 512 and 1024 x 1024; PyTorch needs 3.6 GB at 512. */
static void real_bytes(void **state)
{
    (void)state;
    const wd_vae_config wan21 = wd_test_preset("wan2.1-1.3b").vae;
    size_t small = wd_vae_decode_bytes(&wan21, (int64_t[]){1, 16, 1, 64, 64});
    size_t large = wd_vae_decode_bytes(&wan21, (int64_t[]){1, 16, 1, 128, 128});
    print_message("512 x 512: %zu bytes, 1024 x 1024: %zu bytes\n", small, large);
    assert_true(small < 250 << 20);
    assert_true(large < (size_t)1000 << 20);
    /* Many pictures are computed in groups, so the memory does not grow with their number. */
    assert_int_equal(wd_vae_decode_bytes(&wan21, (int64_t[]){50, 16, 1, 64, 64}), small);
}

static void normalisation(void **state)
{
    (void)state;
    session s = open_session("models/wan-tiny", WD_VAE_DECODER, false);
    const int64_t dim[5] = {2, 16, 1, 3, 5};
    float x[480], y[480];
    wd_random_normal(x, 480, (wd_random){1, WD_RANDOM_TEST, 0}, 0);
    memcpy(y, x, sizeof y);
    wd_vae_unnormalize(y, &s.config, dim);
    assert_float_equal(y[0], x[0] * s.config.latents_std[0] + s.config.latents_mean[0], 1e-5);
    assert_float_equal(y[479], x[479] * s.config.latents_std[15] + s.config.latents_mean[15], 1e-5);
    wd__vae_normalize(y, &s.config, dim);
    assert_true(wd_test_rel_error(y, x, 480) < 1e-6);
    close_session(&s);
}

static void refusals(void **state)
{
    (void)state;
    session s = open_session("tests/fixtures/vae-2.2", WD_VAE_BOTH, false);
    float any[1] = {0};
    wd_vae *none;
    wd_err err;
    wd_test_refused(wd_vae_decode(s.vae, any, any, (int64_t[]){1, 16, 1, 2, 2}, &err), &err,
                    WD_MISMATCH, "found [1, 16, 1, 2, 2]");
    wd_test_refused(wd_vae_encode(s.vae, any, any, (int64_t[]){1, 3, 1, 32, 24}, &err), &err,
                    WD_MISMATCH, "multiples of 16");
    wd_vae_config wrong = s.config;
    wrong.base_dim = 5;
    wd_test_refused(wd_vae_open(&none, &wrong, s.weights, WD_VAE_BOTH, s.queue, &err), &err,
                    WD_MISMATCH, "encoder.conv_in.weight");
    close_session(&s);
}

static wd_status open_and_close(void *context, wd_err *err)
{
    const session *s = context;
    wd_vae *vae;
    WD_TRY(wd_vae_open(&vae, &s->config, s->weights, WD_VAE_BOTH, s->queue, err));
    wd_vae_close(vae);
    return WD_OK;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    session s = open_session("tests/fixtures/vae-2.2", WD_VAE_BOTH, false);
    const size_t bytes = wd_device_bytes(s.device);
    wd_test_failing_allocations(open_and_close, NULL, &s, 3);
    assert_int_equal(wd_device_bytes(s.device), bytes);
    close_session(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures),
        cmocka_unit_test(videos),
        cmocka_unit_test(bands),
        cmocka_unit_test(pipeline),
        cmocka_unit_test(batch_independent),
        cmocka_unit_test(bytes),
        cmocka_unit_test(real_bytes),
        cmocka_unit_test(normalisation),
        cmocka_unit_test(refusals),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
