/* `wandistiller forward` against every fixture, as somebody with a reference of their own would run
 * it. */
#include "program.h"

/* What must hold, relative L2 per tensor; the reason of each is in src/wan/dit_test.c. */
static const double tolerance_f32 = 2e-5, tolerance_grad = 1e-4, tolerance_bf16 = 1.5e-2;

static wd_program program;

static const char *fixture(const char *folder)
{
    static char path[16][512];
    static int next;
    char *out = path[next++ % 16];
    snprintf(out, sizeof path[0], "%s/tests/fixtures/%s", wd_test_source(), folder);
    return out;
}

static const char *device; /* that computes; NULL: wd_test_device */

static void run(const char *name, const char *component, const char *dtype, const char *extra)
{
    char in[64];
    snprintf(in, sizeof in, "%s/in.safetensors", name);
    wd_program_run(&program, "forward", "--model", fixture(name), "--component", component, "--in",
                   fixture(in), "--out", wd_test_path("out.safetensors"), "--dtype", dtype,
                   "--device", device ? device : wd_test_device(), extra);
    wd_program_succeeded(&program);
}

/* Every tensor of the expected file. */
static void compare_all(const char *expected, double forward, double grad)
{
    wd_err err;
    wd_safetensors *want, *found;
    wd_test_ok(wd_safetensors_open(&want, fixture(expected + strlen("tests/fixtures/")), &err),
               &err);
    wd_test_ok(wd_safetensors_open(&found, wd_test_path("out.safetensors"), &err), &err);
    assert_int_equal(wd_safetensors_count(want), wd_safetensors_count(found));
    for (int64_t i = 0; i < wd_safetensors_count(want); i++) {
        const char *name = wd_safetensors_at(want, i)->name;
        wd_test_compare(wd_test_path("out.safetensors"), expected, name,
                        strncmp(name, "grad.", 5) ? forward : grad);
    }
    wd_safetensors_close(want);
    wd_safetensors_close(found);
}

static const char *const transformers[] = {"dit-image", "dit-head128", "dit-video"};

static void transformers_and_their_gradients(void **state)
{
    (void)state;
    char path[64];
    for (int i = 0; i < 3; i++) {
        run(transformers[i], "transformer", "float32", "--grad");
        snprintf(path, sizeof path, "tests/fixtures/%s/out.safetensors", transformers[i]);
        compare_all(path, tolerance_f32, tolerance_grad);
    }
}

/* bf16 lies as far from our fp32 as the reference's bf16 from its fp32: it is really used. */
static void check_bf16(const char *name, const char *component, const char *tensor)
{
    char fp32[64], bf16[64];
    snprintf(fp32, sizeof fp32, "tests/fixtures/%s/out.safetensors", name);
    snprintf(bf16, sizeof bf16, "tests/fixtures/%s/out_bf16.safetensors", name);
    run(name, component, "bfloat16", NULL);
    wd_test_compare(wd_test_path("out.safetensors"), bf16, tensor, tolerance_bf16);
    const double ours = wd_test_compare(wd_test_path("out.safetensors"), fp32, tensor, 1);
    wd_tensor a = wd_test_load(bf16, tensor), b = wd_test_load(fp32, tensor);
    const double theirs = wd_test_rel_error(a.data, b.data, wd_tensor_count(&a));
    if (ours < 0.5 * theirs || ours > 2 * theirs)
        fail_msg("%s: bf16 lies %.3g from fp32, the reference's %.3g", name, ours, theirs);
    wd_free(a.data);
    wd_free(b.data);
}

static void transformers_in_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) check_bf16(transformers[i], "transformer", "sample");
}

static void text_encoder(void **state)
{
    (void)state;
    run("umt5", "text_encoder", "float32", NULL);
    compare_all("tests/fixtures/umt5/out.safetensors", tolerance_f32, 0);
    check_bf16("umt5", "text_encoder", "last_hidden_state");
}

static void vae_both_ways(void **state)
{
    (void)state;
    static const char *const names[] = {"vae-2.1", "vae-2.1-video", "vae-2.2"};
    char path[64];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "tests/fixtures/%s/out.safetensors", names[i]);
        run(names[i], "vae_decoder", "float32", NULL);
        wd_test_compare(wd_test_path("out.safetensors"), path, "sample", tolerance_f32);
        run(names[i], "vae_encoder", "float32", NULL);
        wd_test_compare(wd_test_path("out.safetensors"), path, "encoded_mean", tolerance_f32);
    }
}

/* The second expert of a pipeline is another model than the first. */
static void second_expert(void **state)
{
    (void)state;
    static float out[2][16 * 8 * 12];
    static const char *const component[] = {"transformer", "transformer_2"};
    const char *in = wd_test_path("in.safetensors");
    float zeros[24 * 96] = {0}, noise[16 * 8 * 12], t = 500;
    for (int i = 0; i < 16 * 8 * 12; i++) noise[i] = sinf((float)i);
    const wd_safetensors_item items[] = {
        {"hidden_states", WD_F32, 5, {1, 16, 1, 8, 12}},
        {"timestep", WD_F32, 1, {1}},
        {"encoder_hidden_states", WD_F32, 3, {1, 24, 96}},
    };
    wd_safetensors_writer *writer;
    wd_err err;
    wd_test_ok(wd_safetensors_create(&writer, in, items, 3, NULL, &err), &err);
    wd_test_ok(wd_safetensors_put(writer, noise, sizeof noise, &err), &err);
    wd_test_ok(wd_safetensors_put(writer, &t, sizeof t, &err), &err);
    wd_test_ok(wd_safetensors_put(writer, zeros, sizeof zeros, &err), &err);
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    for (int i = 0; i < 2; i++) {
        wd_safetensors *set;
        wd_program_run(&program, "forward", "--model", fixture("../../models/wan-tiny"),
                       "--component", component[i], "--in", in, "--out",
                       wd_test_path("out.safetensors"));
        wd_program_succeeded(&program);
        wd_test_ok(wd_safetensors_open(&set, wd_test_path("out.safetensors"), &err), &err);
        memcpy(out[i], wd_safetensors_find(set, "sample")->tensor.data, sizeof out[i]);
        wd_safetensors_close(set);
    }
    assert_true(wd_test_rel_error(out[0], out[1], 16 * 8 * 12) > 1e-2);
}

static void refuse(wd_status status, const char *text, const char *model, const char *component,
                   const char *in, const char *out, const char *extra)
{
    wd_program_run(&program, "forward", "--model", model, "--component", component, "--in", in,
                   "--out", out, extra);
    wd_program_refused(&program, status, text);
}

static void write_empty_ids(const char *path)
{
    const wd_safetensors_item items[] = {{"input_ids", WD_I64, 2, {2, 0}},
                                         {"attention_mask", WD_I64, 2, {2, 0}}};
    wd_safetensors_writer *writer;
    wd_err err;
    wd_test_ok(wd_safetensors_create(&writer, path, items, 2, NULL, &err), &err);
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
}

/* A simulated device works later than it is asked to, as a GPU does, and refuses copies from
 * memory that is not pinned. */
static void all_parts_run_on_a_device_that_works_later(void **state)
{
    (void)state;
    device = "sim:2GiB";
    run("dit-image", "transformer", "float32", "--grad");
    compare_all("tests/fixtures/dit-image/out.safetensors", tolerance_f32, tolerance_grad);
    text_encoder(state);
    vae_both_ways(state);
    device = NULL;
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    const char *model = fixture("dit-image"), *in = fixture("dit-image/in.safetensors");
    const char *out = wd_test_path("never.safetensors");
    refuse(WD_NOT_FOUND, "no/such/model", "no/such/model", "transformer", in, out, NULL);
    refuse(WD_NOT_FOUND, "transformer_2", model, "transformer_2", in, out, NULL);
    refuse(WD_NOT_FOUND, "text_encoder", model, "text_encoder", in, out, NULL);
    refuse(WD_INVALID_ARGUMENT, "found \"unet\"", model, "unet", in, out, NULL);
    refuse(WD_NOT_FOUND, "nothing.safetensors", model, "transformer", "nothing.safetensors", out,
           NULL);
    refuse(WD_NOT_FOUND, "\"hidden_states\"", model, "transformer", fixture("umt5/in.safetensors"),
           out, NULL);
    refuse(WD_MISMATCH, "encoder_hidden_states: expected [1, S, 64], found [1, 64, 48]", model,
           "transformer", fixture("dit-head128/in.safetensors"), out, NULL);
    refuse(WD_UNSUPPORTED, "--grad", fixture("umt5"), "text_encoder",
           fixture("umt5/in.safetensors"), out, "--grad");
    refuse(WD_UNSUPPORTED, "--dtype bfloat16", fixture("vae-2.1"), "vae_decoder",
           fixture("vae-2.1/in.safetensors"), out, "--dtype=bfloat16");
    write_empty_ids(wd_test_path("empty.safetensors"));
    refuse(WD_MISMATCH, "\"input_ids\" has no elements, but the shape [2, 0]", fixture("umt5"),
           "text_encoder", wd_test_path("empty.safetensors"), out, NULL);
    refuse(WD_NOT_FOUND, "no/such/folder", model, "transformer", in,
           "no/such/folder/out.safetensors", NULL);
    assert_false(wd_path_exists(out));
}

/* Only results of earlier runs are, as in all the tests above. */
static void nothing_else_is_replaced(void **state)
{
    (void)state;
    wd_err err;
    static const char file[] = "dit-image/in.safetensors";
    const char *model = fixture("dit-image"), *in = wd_test_path("in.safetensors");
    const char *weights = wd_test_path("weights.safetensors"), *notes = wd_test_path("notes.txt");
    char hash[2][33];
    wd_test_ok(wd_file_copy(in, fixture(file), &err), &err);
    wd_test_ok(wd_file_copy(weights,
                            fixture("dit-image/transformer/diffusion_pytorch_model.safetensors"),
                            &err),
               &err);
    wd_test_ok(wd_file_hash(hash[0], weights, &err), &err);
    wd_test_ok(wd_file_write(notes, "notes", 5, &err), &err);
    refuse(WD_INVALID_ARGUMENT, "in.safetensors: this file is what is read", model, "transformer",
           in, in, NULL);
    refuse(WD_INVALID_ARGUMENT, "weights.safetensors: is there already", model, "transformer", in,
           weights, NULL);
    refuse(WD_INVALID_ARGUMENT, "notes.txt: is there already", model, "transformer", in, notes,
           NULL);
    wd_test_ok(wd_file_hash(hash[1], weights, &err), &err);
    assert_string_equal(hash[0], hash[1]);
    for (int i = 0; i < 2; i++) {
        wd_program_run(&program, "forward", "--model", model, "--component", "transformer", "--in",
                       in, "--out", wd_test_path("result.safetensors"));
        wd_program_succeeded(&program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transformers_and_their_gradients),
        cmocka_unit_test(transformers_in_bf16),
        cmocka_unit_test(text_encoder),
        cmocka_unit_test(vae_both_ways),
        cmocka_unit_test(second_expert),
        cmocka_unit_test(all_parts_run_on_a_device_that_works_later),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
        cmocka_unit_test(nothing_else_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
