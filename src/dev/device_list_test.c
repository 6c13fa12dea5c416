/* Tests of the values of --devices and --host_memory. */
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "testing.h"

#include "dev/cuda.h"
#include "dev/device_list.h"

static wd_device_list parse(const char *text)
{
    wd_device_list list;
    wd_err err;
    wd_test_ok(wd_device_list_parse(&list, text, &err), &err);
    return list;
}

static void expect_rates(const wd_device_spec *device, double bf16, double fp32)
{
    assert_true(fabs(device->flops_per_s[WD_16_BIT] - bf16) < 1e6);
    assert_true(fabs(device->flops_per_s[WD_32_BIT] - fp32) < 1e6);
}

static void processor(void **state)
{
    (void)state;
    int gpus;
    const char *const texts[] = {"cpu", "auto"};
    const bool has_gpus = wd_cuda_count(&gpus, NULL) == WD_OK && gpus;
    for (int i = 0; i < (has_gpus ? 1 : 2); i++) {
        const wd_device_list list = parse(texts[i]);
        assert_int_equal(list.count, 1);
        assert_int_equal(list.device[0].type, WD_DEVICE_CPU);
        expect_rates(&list.device[0], 0, 0);
    }
    wd_device_list list = parse("cpu@compute=1.5TFLOP/s");
    expect_rates(&list.device[0], 1.5e12, 1.5e12);
    assert_true(parse("sim:1GiB@cpu=2GFLOP/s").processor_flops_per_s == 2e9);
    assert_true(parse("sim:1GiB@compute=2GFLOP/s").processor_flops_per_s == 0);
    assert_true(parse("sim:1GiB@memory=80GB/s,link=1GB/s").memory_bytes_per_s == 80e9);
    assert_true(parse("sim:1GiB@link=1GB/s").memory_bytes_per_s == 0);
}

static void simulated_devices(void **state)
{
    (void)state;
    wd_device_list list = parse("sim:4x24GiB");
    assert_int_equal(list.count, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(list.device[i].type, WD_DEVICE_SIM);
        assert_true(list.device[i].bytes == (size_t)24 << 30);
        assert_true(list.device[i].link_bytes_per_s == 0);
        expect_rates(&list.device[i], 0, 0);
    }
    list = parse("sim:2x1.5GB,4096B,1x48MiB@compute=20GFLOP/s,link=2.5GB/s");
    assert_int_equal(list.count, 4);
    const size_t bytes[] = {1500000000, 1500000000, 4096, (size_t)48 << 20};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(list.device[i].bytes, bytes[i]);
        assert_true(list.device[i].link_bytes_per_s == 2.5e9);
        expect_rates(&list.device[i], 2e10, 2e10);
    }
    list = parse("sim:64x1TiB@link=100KiB/s");
    assert_int_equal(list.count, WD_DEVICES_MAX);
    assert_true(list.device[63].bytes == (size_t)1 << 40);
    assert_true(list.device[63].link_bytes_per_s == 102400);
    expect_rates(&list.device[63], 0, 0);
}

static void refuse(const char *devices, wd_status status, const char *text)
{
    wd_device_list list = {.count = -1};
    wd_err err = {0};
    wd_test_refused(wd_device_list_parse(&list, devices, &err), &err, status, text);
    assert_non_null(strstr(err.message, "--devices"));
    assert_int_equal(list.count, -1);
}

/* A card is its memory, and half the products and four fifths of the link of its data sheet. */
static void cards(void **state)
{
    (void)state;
    wd_err err;
    wd_device_list list;
    wd_test_ok(wd_device_list_parse(&list, "sim:2xrtx4090,h100,1GiB", &err), &err);
    assert_int_equal(list.count, 4);
    for (int i = 0; i < 2; i++) {
        assert_true(list.device[i].type == WD_DEVICE_SIM);
        assert_true(list.device[i].bytes == (size_t)24 << 30);
        expect_rates(&list.device[i], 82.6e12, 41.3e12);
        assert_true(fabs(list.device[i].link_bytes_per_s - 25.2e9) < 1e3);
    }
    assert_true(list.device[2].bytes == (size_t)80 << 30);
    expect_rates(&list.device[2], 494.5e12, 33.5e12);
    expect_rates(&list.device[3], 0, 0);
    wd_test_ok(wd_device_list_parse(&list, "sim:h200@compute=1TFLOP/s", &err), &err);
    expect_rates(&list.device[0], 1e12, 1e12);
    assert_true(fabs(list.device[0].link_bytes_per_s - 50.4e9) < 1e3);
}

/* Cards have the names that people give them, with the rtx or without; their memory may be stated.
 */
static void names_of_cards(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double gib, bf16;
    } cards[] = {{"sim:3060", 12, 12.75e12},        {"sim:4090", 24, 82.6e12},
                 {"sim:rtx4090", 24, 82.6e12},      {"sim:4060ti16", 16, 22.05e12},
                 {"sim:4070ti-super", 16, 44.1e12}, {"sim:rtx5090", 32, 104.75e12},
                 {"sim:rtxa6000", 48, 77.4e12},     {"sim:6000-ada", 48, 182.1e12},
                 {"sim:rtxpro6000", 96, 251.9e12},  {"sim:l4", 24, 60.5e12},
                 {"sim:a100-40", 40, 156e12},       {"sim:b200", 179, 1125e12}};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        const wd_device_list list = parse(cards[i].text);
        assert_int_equal(list.count, 1);
        assert_true(list.device[0].bytes == (size_t)(cards[i].gib * (1 << 30)));
        assert_true(fabs(list.device[0].flops_per_s[WD_16_BIT] / cards[i].bf16 - 1) < 1e-6);
        assert_true(list.device[0].link_bytes_per_s > 12e9);
    }
    const wd_device_list list = parse("sim:2x4090,3060@memory=11.5GiB,memory=80GB/s");
    assert_int_equal(list.count, 3);
    for (int i = 0; i < 3; i++) assert_true(list.device[i].bytes == (size_t)23 << 29);
    assert_true(fabs(list.memory_bytes_per_s - 80e9) < 1e3);
}

/* compute= is the speed of every product, but of those in fp32 where fp32= states theirs. */
static void rates_of_fp32(void **state)
{
    (void)state;
    wd_device_list list = parse("sim:a100,rtx3090");
    expect_rates(&list.device[0], 156e12, 9.75e12);
    expect_rates(&list.device[1], 35.5e12, 17.8e12);
    list = parse("sim:1GiB@fp32=5GFLOP/s,link=1GB/s,compute=80GFLOP/s");
    expect_rates(&list.device[0], 80e9, 5e9);
    list = parse("sim:a100@fp32=5TFLOP/s");
    expect_rates(&list.device[0], 156e12, 5e12);
    list = parse("sim:2xa100@compute=200TFLOP/s,fp32=5TFLOP/s");
    for (int i = 0; i < 2; i++) expect_rates(&list.device[i], 200e12, 5e12);
}

static void check_speeds(const char *text, bool stated)
{
    wd_err err;
    wd_device_list list;
    wd_test_ok(wd_device_list_parse(&list, text, &err), &err);
    if (stated)
        wd_test_ok(wd_device_list_need_speeds(&list, text, &err), &err);
    else
        wd_test_refused(wd_device_list_need_speeds(&list, text, &err), &err, WD_INVALID_ARGUMENT,
                        "state both speeds");
}

static void plans_need_speeds(void **state)
{
    (void)state;
    check_speeds("auto", true);
    check_speeds("cpu", true);
    check_speeds("sim:4x24GiB", false);
    check_speeds("sim:24GiB@link=1GB/s", false);
    check_speeds("sim:24GiB@compute=1GFLOP/s", false);
    check_speeds("sim:24GiB@link=1GB/s,compute=1GFLOP/s", true);
    check_speeds("sim:24GiB@link=1GB/s,fp32=1GFLOP/s", false);
    check_speeds("sim:2xl40s", true);
    check_speeds("sim:2xl40s,1GiB", false);
}

static bool has_nvidia_file;

/* In the place of the C library's function, which `auto` asks for NVIDIA's file in /dev. */
int access(const char *path, int mode)
{
    if (!strcmp(path, "/dev/nvidiactl")) return has_nvidia_file ? 0 : -1;
    return faccessat(AT_FDCWD, path, mode, 0);
}

/* `auto` says why it takes the processor where a kernel module shows that there is a GPU, and says
 * nothing where there is none. */
static void auto_tells_a_gpu_that_it_cannot_use(void **state)
{
    (void)state;
    wd_cuda_usable usable;
    wd_cuda_find_usable(&usable);
    if (usable.has_driver) wd_test_skip("there is an NVIDIA driver");
    has_nvidia_file = false;
    assert_string_equal(parse("auto").note, "");
    has_nvidia_file = true;
    const wd_device_list list = parse("auto");
    assert_int_equal(list.device[0].type, WD_DEVICE_CPU);
    assert_non_null(strstr(list.note, "auto takes the processor instead of a GPU: this "));
    assert_non_null(strstr(list.note, usable.why));
    assert_string_equal(parse("cpu").note, "");
    has_nvidia_file = false;
}

/* Without CUDA, or a driver that shows a GPU. src/dev/cuda/device_list_test.c has those that there
 * are. */
static void gpus_are_refused(void **state)
{
    (void)state;
    int gpus;
    if (wd_cuda_count(&gpus, NULL) == WD_OK && gpus) wd_test_skip("there are GPUs");
    refuse("cuda", WD_UNSUPPORTED, "--devices cuda: ");
    refuse("cuda:0,1", WD_UNSUPPORTED, "--devices");
}

static void errors_name_the_part(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"", "expected auto, cpu, cuda: with"},
        {"gpu", "found \"gpu\""},
        {"cpu:0", "found \"cpu:0\""},
        {"auto@compute=1GFLOP/s", "found \"auto@compute=1GFLOP/s\""},
        {"cpu@", "expected compute=3TFLOP/s behind cpu@, found \"\""},
        {"cpu@link=1GB/s", "found \"link=1GB/s\""},
        {"cpu@compute=1GB/s", "found \"1GB/s\""},
        {"cpu@compute=1GFLOP/s,compute=2GFLOP/s", "found \"1GFLOP/s,compute=2GFLOP/s\""},
        {"sim:1GiB@cpu=1GFLOP/s,cpu=1GFLOP/s", "each once, found \"cpu=1GFLOP/s\""},
        {"sim:1GiB@memory=1GB/s,memory=1GB/s", "each once, found \"memory=1GB/s\""},
        {"sim:4090@memory=1GiB,memory=2GiB", "each once, found \"memory=2GiB\""},
        {"sim:4090@memory=1Gib", "expected a size such as 24GiB, 500MB or 4096B, found \"1Gib\""},
        {"cuda:0@memory=22GiB", "expected speeds alone"},
        {"sim:rtxrtx4090", "found \"rtxrtx4090\""},
        {"sim:rtx", "found \"rtx\""},
        {"sim:1GiB@memory=1GFLOP/s", "found \"1GFLOP/s\""},
        {"sim", "found \"sim\""},
        {"sim:", "expected a size such as 24GiB, 500MB or 4096B, or a card (rtx3060, "},
        {"sim:rtx4091", "found \"rtx4091\""},
        {"sim:2xh10", "found \"h10\""},
        {"sim:4", "found \"4\""},
        {"sim:4x", "found \"\""},
        {"sim:4x24", "found \"24\""},
        {"sim:4x24Gib", "found \"24Gib\""},
        {"sim:4x24 GiB", "found \"24 GiB\""},
        {"sim:4x-1GiB", "found \"-1GiB\""},
        {"sim:4x.5GiB", "found \".5GiB\""},
        {"sim:4x1.2.3GiB", "found \"1.2.3GiB\""},
        {"sim:4xinfGiB", "found \"infGiB\""},
        {"sim:4x0GiB", "found \"0GiB\""},
        {"sim:4x0.4B", "found \"0.4B\""},
        {"sim:4x9999999999TiB", "found \"9999999999TiB\""},
        {"sim:4x00000000000000000000000000000000001GiB", "expected a size"},
        {"sim:0x24GiB", "expected a number of devices from 1 to 64"},
        {"sim:65x24GiB", "found \"65x24GiB\""},
        {"sim:1.5x24GiB", "found \"1.5x24GiB\""},
        {"sim:4ax24GiB", "found \"4ax24GiB\""},
        {"sim:x24GiB", "found \"x24GiB\""},
        {"sim:40x1GiB,25x1GiB", "expected at most 64 devices in all, found \"25x1GiB\""},
        {"sim:1GiB,", "h200 and b200), found \"\""},
        {"sim:1GiB@",
         "expected link=25GB/s, compute=20GFLOP/s, fp32=5GFLOP/s, cpu=3TFLOP/s, memory=80GB/s or "
         "memory=22GiB, each once, "
         "found \"\""},
        {"sim:1GiB@link", "found \"link\""},
        {"sim:1GiB@speed=1GB/s", "found \"speed=1GB/s\""},
        {"sim:1GiB@fp32=1GFLOP/s,compute=3GFLOP/s,fp32=2GFLOP/s", "found \"fp32=2GFLOP/s\""},
        {"sim:1GiB@fp32=20GB/s", "expected a speed such as 20GFLOP/s behind compute=, fp32="},
        {"sim:1GiB@link=1GB/s,link=2GB/s", "each once, found \"link=2GB/s\""},
        {"sim:1GiB@link=25GB",
         "expected a speed such as 25GB/s behind link= and memory=, found \"25GB\""},
        {"sim:1GiB@link=25GB/h", "found \"25GB/h\""},
        {"sim:1GiB@link=0GB/s", "found \"0GB/s\""},
        {"sim:1GiB@link=25GFLOP/s", "found \"25GFLOP/s\""},
        {"sim:1GiB@compute=20GB/s", "expected a speed such as 20GFLOP/s behind compute="},
        {"sim:1GiB@link=1GB/s@compute=1GFLOP/s", "found \"1GB/s@compute=1GFLOP/s\""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(wrong[i][0], WD_INVALID_ARGUMENT, wrong[i][1]);
}

static void sizes(void **state)
{
    (void)state;
    size_t bytes = 0;
    wd_err err;
    wd_test_ok(wd_bytes_parse(&bytes, "--host_memory", "60GiB", &err), &err);
    assert_true(bytes == (size_t)60 << 30);
    wd_test_ok(wd_bytes_parse(&bytes, "--host_memory", "0.7KiB", &err), &err);
    assert_int_equal(bytes, 716);
    wd_test_refused(wd_bytes_parse(&bytes, "--host_memory", "60", &err), &err, WD_INVALID_ARGUMENT,
                    "--host_memory: expected a size such as");
    assert_int_equal(bytes, 716);
}

/* Each rank gets the same number of its host's devices, in order. */
static void ranks_share_equally(void **state)
{
    (void)state;
    wd_err err;
    wd_device_list all, part;
    wd_test_ok(wd_device_list_parse(&all, "sim:2x1GiB,2GiB,3GiB", &err), &err);
    part = all;
    wd_test_ok(wd_device_list_share(&part, 1, 2, &err), &err);
    assert_int_equal(part.count, 2);
    assert_true(part.device[0].bytes == (size_t)2 << 30 && part.device[1].bytes == (size_t)3 << 30);
    part = all;
    wd_test_refused(wd_device_list_share(&part, 0, 3, &err), &err, WD_INVALID_ARGUMENT,
                    "that the 3 ranks of a host can share equally, found 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processor),
        cmocka_unit_test(simulated_devices),
        cmocka_unit_test(cards),
        cmocka_unit_test(names_of_cards),
        cmocka_unit_test(rates_of_fp32),
        cmocka_unit_test(plans_need_speeds),
        cmocka_unit_test(auto_tells_a_gpu_that_it_cannot_use),
        cmocka_unit_test(gpus_are_refused),
        cmocka_unit_test(errors_name_the_part),
        cmocka_unit_test(sizes),
        cmocka_unit_test(ranks_share_equally),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
