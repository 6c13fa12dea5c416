/* The choice of blocks: those go that change least, the ends stay, and it is the same on all
 * devices, in the memory that was planned. */
#include "train/loop/block_choice.h"

#include "io/file/file.h"
#include "student_fixture.h"
#include "teacher_copy.h"
#include "test_preset.h"
#include "tiny_teacher.h"

enum { TEXT = 6 };

/* Text that differs from prompt to prompt. */
static void text_of(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    (void)context;
    assert_int_equal(dtype, WD_F32);
    wd_random_normal(out, TEXT * teacher.dit.text_dim,
                     (wd_random){7, WD_RANDOM_TEST, (uint64_t)prompt}, 0);
}

static wd_block_choice_options options_of(const wd_pipeline *from, int64_t layers)
{
    return (wd_block_choice_options){.from = from,
                                     .layers = layers,
                                     .dtype = WD_F32,
                                     .latent_height = 8,
                                     .latent_width = 8,
                                     .text_tokens = TEXT,
                                     .text_repeat = 3,
                                     .prompts = 3,
                                     .flow_shift = 3,
                                     .num_train_timesteps = 1000,
                                     .seed = 5,
                                     .text = text_of};
}

static void choose_with(int64_t block[6], const wd_pipeline *from, int64_t layers, uint64_t seed)
{
    wd_err err;
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_block_choice_options options = options_of(from, layers);
    options.seed = seed;
    wd_test_ok(wd_block_choice_make(block, &options, b.queue, &err), &err);
    bench_close(&b);
}

static void choose(int64_t block[6], const wd_pipeline *from, int64_t layers)
{
    choose_with(block, from, layers, 5);
}

/* Sets a tensor of the low-noise expert's file to zero. */
static void clear(const char *folder, const wd_pipeline *p, const char *name)
{
    wd_err err;
    wd_safetensors *set;
    char *bytes;
    size_t count;
    const char *file = wd_test_in(folder, "transformer_2/diffusion_pytorch_model.safetensors");
    wd_test_ok(wd_pipeline_open_weights(&set, p, WD_COMPONENT_TRANSFORMER_2, &err), &err);
    const wd_tensor *tensor = &wd_safetensors_find(set, name)->tensor;
    wd_test_ok(wd_file_read(&bytes, &count, file, 1 << 26, &err), &err);
    char *at = memmem(bytes, count, tensor->data, wd_tensor_bytes(tensor));
    assert_non_null(at);
    memset(at, 0, wd_tensor_bytes(tensor));
    wd_safetensors_close(set);
    wd_test_ok(wd_file_write(file, bytes, count, &err), &err);
    wd_free(bytes);
}

/* A block that adds nothing to the stream goes first, wherever it is between the ends. */
static void what_does_nothing_goes_first(void **state)
{
    (void)state;
    static const char *const outputs[] = {"attn1.to_out.0.weight", "attn1.to_out.0.bias",
                                          "attn2.to_out.0.weight", "attn2.to_out.0.bias",
                                          "ffn.net.2.weight",      "ffn.net.2.bias"};
    static const int64_t idle[] = {2, 3};
    wd_err err;
    for (int k = 0; k < 2; k++) {
        wd_pipeline p;
        char folder[WD_PATH_MAX], name[64];
        int64_t block[6];
        snprintf(name, sizeof name, "idle-%d", k);
        wd_test_copy_teacher(folder, name);
        wd_test_ok(wd_pipeline_open(&p, folder, &err), &err);
        for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
            snprintf(name, sizeof name, "blocks.%d.%s", (int)idle[k], outputs[i]);
            clear(folder, &p, name);
        }
        choose(block, &p, 5);
        for (int i = 0; i < 5; i++) assert_int_equal(block[i], i < idle[k] ? i : i + 1);
    }
}

/* Each smaller choice is part of the larger ones. */
static void the_ends_stay(void **state)
{
    (void)state;
    int64_t larger[6] = {0, 1, 2, 3, 4, 5};
    for (int64_t layers = 5; layers >= 2; layers--) {
        int64_t block[6], at = 0;
        choose(block, &teacher, layers);
        assert_int_equal(block[0], 0);
        assert_int_equal(block[layers - 1], 5);
        for (int64_t i = 0; i < layers; i++) {
            while (at <= layers && larger[at] != block[i]) at++;
            assert_true(at <= layers);
        }
        memcpy(larger, block, sizeof larger);
    }
}

/* What matters least does not depend on the noise that states are made from. By the squares of the
 * differences it did: blocks whose absence made velocities small seemed to matter little. */
static void seeds_choose_alike(void **state)
{
    (void)state;
    int64_t expected[6], block[6];
    choose_with(expected, &teacher, 4, 1);
    for (uint64_t seed = 2; seed < 8; seed++) {
        choose_with(block, &teacher, 4, seed);
        assert_memory_equal(block, expected, 4 * sizeof *block);
    }
}

/* On devices whose memory only copies and kernels reach, too. */
static void devices_choose_alike_in_planned_memory(void **state)
{
    (void)state;
    wd_status (*const open[])(wd_device **, int, wd_err *) = {wd_device_open_guard, open_sim};
    const wd_block_choice_options options = options_of(&teacher, 3);
    int64_t expected[6], block[6];
    wd_err err;
    choose(expected, &teacher, 3);
    for (int i = 0; i < 2; i++) {
        wd_memory_plan plan = {0};
        bench b = bench_on(open[i], 1);
        const wd_devices devices = {.count = 1, .processor = -1, .device = {b.device}};
        wd_test_ok(wd_block_choice_plan(&plan, &options, &devices, 0, &err), &err);
        const size_t before = wd_device_bytes(b.device);
        wd_device_restart_peak(b.device);
        wd_test_ok(wd_block_choice_make(block, &options, b.queue, &err), &err);
        assert_memory_equal(block, expected, 3 * sizeof *block);
        const size_t used = wd_device_bytes_peak(b.device) - before;
        const size_t planned = wd_memory_plan_peak(&plan, 0);
        if (used > planned || planned > used + used / 8)
            fail_msg("%zu bytes of the device were planned, and %zu used", planned, used);
        bench_close(&b);
    }
}

static void which_models_are_measured(void **state)
{
    (void)state;
    const wd_dit_config small = wd_test_preset("wan2.1-1.3b").dit;
    const wd_dit_config large = wd_test_preset("wan2.2-a14b").dit;
    assert_true(wd_block_choice_is_measured(&small, 20));
    assert_true(wd_block_choice_is_measured(&small, 2));
    assert_false(wd_block_choice_is_measured(&small, 1));
    assert_false(wd_block_choice_is_measured(&small, 30));
    assert_false(wd_block_choice_is_measured(&large, 20));
}

static bool always(void *context)
{
    (void)context;
    return true;
}

static void a_stop_ends_it(void **state)
{
    (void)state;
    wd_err err;
    int64_t block[6];
    bench b = bench_on(wd_device_open_cpu, 1);
    wd_block_choice_options options = options_of(&teacher, 3);
    options.stop = always;
    wd_test_refused(wd_block_choice_make(block, &options, b.queue, &err), &err, WD_INTERRUPTED,
                    "stopped on request");
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_nothing_goes_first),
        cmocka_unit_test(the_ends_stay),
        cmocka_unit_test(seeds_choose_alike),
        cmocka_unit_test(devices_choose_alike_in_planned_memory),
        cmocka_unit_test(which_models_are_measured),
        cmocka_unit_test(a_stop_ends_it),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
