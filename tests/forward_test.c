/* `wandistiller forward` as somebody with a reference of their own would run it, and what it
 * refuses. tests/fixtures_test.c has every fixture. */
#include "program.h"

static wd_program program;

static const char *fixture(const char *folder)
{
    static char path[16][512];
    static int next;
    char *out = path[next++ % 16];
    snprintf(out, sizeof path[0], "%s/tests/fixtures/%s", wd_test_source(), folder);
    return out;
}

/* The reason of the tolerances is in src/model/dit/dit_test.c. */
static void a_fixture_is_matched_from_the_command_line(void **state)
{
    (void)state;
    static const char expected[] = "tests/fixtures/dit-image/out.safetensors";
    const char *out = wd_test_path("out.safetensors");
    wd_program_run(&program, "forward", "--model", fixture("dit-image"), "--component",
                   "transformer", "--in", fixture("dit-image/in.safetensors"), "--out", out,
                   "--dtype", "float32", "--device", wd_test_device(), "--grad");
    wd_program_succeeded(&program);
    wd_test_compare(out, expected, "sample", 2e-5);
    wd_test_compare(out, expected, "grad.hidden_states", 1e-4);
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
    refuse(WD_DOES_NOT_FIT, "nothing was loaded", model, "transformer", in, out,
           "--device=sim:64KiB");
    refuse(WD_DOES_NOT_FIT, "text_encoder needs", fixture("umt5"), "text_encoder",
           fixture("umt5/in.safetensors"), out, "--device=sim:4KiB");
    refuse(WD_DOES_NOT_FIT, "vae_decoder needs", fixture("vae-2.1"), "vae_decoder",
           fixture("vae-2.1/in.safetensors"), out, "--device=sim:64KiB");
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
    refuse(WD_INVALID_ARGUMENT, "in.safetensors: the job reads this file", model, "transformer", in,
           in, NULL);
    refuse(WD_INVALID_ARGUMENT, "weights.safetensors: this file exists already", model,
           "transformer", in, weights, NULL);
    refuse(WD_INVALID_ARGUMENT, "notes.txt: this file exists already", model, "transformer", in,
           notes, NULL);
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
        cmocka_unit_test(a_fixture_is_matched_from_the_command_line),
        cmocka_unit_test(second_expert),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
        cmocka_unit_test(nothing_else_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
