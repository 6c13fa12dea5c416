/* Tests of what --devices says of GPUs, on a stand-in driver that shows some. */
#include "testing.h"

#include <stdlib.h>

#include "dev/device_open.h"
#include "standin/driver.h"
#include "train/loop/devices.h"

static void install(int gpus)
{
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.devices = gpus;
    wd_standin_install(&options);
}

/* `numbers`: of the GPUs that are expected, -1 behind the last. */
static wd_device_list expect(const char *text, const int *numbers)
{
    wd_device_list list;
    wd_err err = {0};
    wd_test_ok(wd_device_list_parse(&list, text, &err), &err);
    int i = 0;
    for (; numbers[i] >= 0; i++) {
        assert_true(i < list.count);
        assert_int_equal(list.device[i].type, WD_DEVICE_CUDA);
        assert_int_equal(list.device[i].number, numbers[i]);
    }
    assert_int_equal(list.count, i);
    return list;
}

static void gpus_by_number(void **state)
{
    (void)state;
    install(8);
    expect("cuda:0", (int[]){0, -1});
    expect("cuda:4", (int[]){4, -1}); /* one GPU, not four */
    expect("cuda:1,0", (int[]){1, 0, -1});
    expect("cuda:4-7,2", (int[]){4, 5, 6, 7, 2, -1});
    expect("cuda:3-3", (int[]){3, -1});
    expect("cuda", (int[]){0, 1, 2, 3, 4, 5, 6, 7, -1});
    assert_int_equal(wd_standin_remove(), 0);
}

static void speeds_can_be_stated(void **state)
{
    (void)state;
    install(2);
    wd_device_list list =
        expect("cuda:0,1@link=25GB/s,compute=400TFLOP/s,cpu=1TFLOP/s", (int[]){0, 1, -1});
    assert_true(list.device[1].link_bytes_per_s == 25e9 &&
                list.device[1].flops_per_s[WD_16_BIT] == 400e12);
    assert_true(list.processor_flops_per_s == 1e12);
    list = expect("cuda@memory=80GB/s", (int[]){0, 1, -1});
    assert_true(list.memory_bytes_per_s == 80e9 && list.device[0].flops_per_s[WD_16_BIT] == 0);
    assert_int_equal(wd_standin_remove(), 0);
}

static void auto_takes_gpus_where_there_are_any(void **state)
{
    (void)state;
    wd_device_list list;
    wd_err err = {0};
    install(2);
    expect("auto", (int[]){0, 1, -1});
    assert_int_equal(wd_standin_remove(), 0);
    install(0);
    wd_test_ok(wd_device_list_parse(&list, "auto", &err), &err);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.device[0].type, WD_DEVICE_CPU);
    assert_int_equal(wd_standin_remove(), 0);
}

static int warnings;
static char warning[4096];

static void keep_warning(void *context, wd_log_level level, const char *message)
{
    (void)context, (void)level;
    warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

/* Opens `auto` on the stand-in driver of `options`, call number `failing` of which fails (0: none)
 * with CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, and checks which devices it takes. Returns how often it
 * warned; `warning` is the last text. */
static int open_auto(const wd_standin_options *options, int failing, wd_device_type type,
                     const int *numbers)
{
    enum { DRIVER_MISMATCH = 803 };
    wd_devices devices;
    wd_err err = {0};
    wd_standin_options all = *options;
    wd_standin_install_all(&all);
    if (failing) wd_standin_fail_call(failing, DRIVER_MISMATCH);
    warnings = 0;
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    wd_test_ok(wd_devices_open(&devices, "auto", 1, &err), &err);
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    for (int i = 0; i < devices.list.count; i++) {
        assert_int_equal(devices.list.device[i].type, type);
        assert_int_equal(devices.list.device[i].number, numbers[i]);
    }
    assert_int_equal(numbers[devices.list.count], -1);
    wd_devices_close(&devices);
    assert_int_equal(wd_standin_remove(), 0);
    return warnings;
}

/* A driver that cannot be used, or a GPU that is too old, is no reason to end, but one to say so,
 * once. */
static void auto_says_which_gpus_it_does_not_take(void **state)
{
    (void)state;
    static const int first[] = {0, -1}, both[] = {0, 1, -1};
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    assert_int_equal(open_auto(&options, 0, WD_DEVICE_CUDA, both), 0);
    assert_int_equal(open_auto(&options, 1, WD_DEVICE_CPU, first), 1); /* cuInit */
    assert_non_null(strstr(warning, "the processor instead of a GPU: the NVIDIA driver cannot be "
                                    "used"));
    assert_non_null(strstr(warning, "803"));
    assert_non_null(strstr(warning, "nvidia-smi"));
    options.last_capability = 75;
    assert_int_equal(open_auto(&options, 0, WD_DEVICE_CUDA, first), 1);
    assert_non_null(strstr(warning, "auto takes other GPUs: cuda:1 (NVIDIA Stand-in, 1 GiB) has "
                                    "compute capability 7.5: expected 8.0 or later"));
    options.capability = 75;
    assert_int_equal(open_auto(&options, 0, WD_DEVICE_CPU, first), 1);
    assert_non_null(strstr(warning, "the processor instead of a GPU: cuda:0 (NVIDIA Stand-in"));
    assert_non_null(strstr(warning, "; cuda:1 (NVIDIA Stand-in"));
    options.devices = 0; /* there are none, or CUDA_VISIBLE_DEVICES hides them */
    assert_int_equal(open_auto(&options, 0, WD_DEVICE_CPU, first), 0);
}

/* Where a GPU cannot be opened, since a library is missing or the driver is too old, `auto`
 * computes on the processor and says why. Whoever names the GPU gets an error. */
static void auto_takes_the_processor_if_no_gpu_opens(void **state)
{
    (void)state;
    static const char *const why[] = {"cuBLASLt is missing", "need driver 580 or later"};
    for (int i = 0; i < 2 * 2; i++) {
        wd_devices devices;
        wd_device *device = NULL;
        wd_err err = {0};
        wd_standin_options options = WD_STANDIN_DEFAULTS;
        wd_standin_install_all(&options);
        assert_int_equal(wd_standin_remove(), 0);
        options.libraries = i % 2 ? options.libraries : NULL;
        options.load_result = i % 2 ? WD_CU_UNSUPPORTED_PTX_VERSION : 0;
        wd_standin_install(&options);
        warnings = 0;
        wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
        if (i / 2) {
            wd_test_ok(wd_device_open_one(&device, "auto", 1, &err), &err);
            assert_null(strstr(wd_device_name(device), "cuda"));
            wd_device_close(device);
            wd_test_refused(wd_device_open_one(&device, "cuda:0", 1, &err), &err, WD_UNSUPPORTED,
                            why[i % 2]);
        } else {
            wd_test_ok(wd_devices_open(&devices, "auto", 1, &err), &err);
            assert_int_equal(devices.count, 1);
            assert_int_equal(devices.list.count, 1);
            assert_int_equal(devices.list.device[0].type, WD_DEVICE_CPU);
            wd_devices_close(&devices);
            wd_test_refused(wd_devices_open(&devices, "cuda", 1, &err), &err, WD_UNSUPPORTED,
                            why[i % 2]);
        }
        wd_log_to(NULL, NULL, WD_LOG_ERROR);
        assert_int_equal(warnings, 1);
        assert_non_null(strstr(warning, "auto takes the processor instead of a GPU: "));
        assert_non_null(strstr(warning, why[i % 2]));
        assert_int_equal(wd_standin_remove(), 0);
    }
}

/* `--device auto` of the commands with one device is the first GPU that can be used. */
static void one_device_is_the_first_usable_gpu(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_device *device;
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    wd_standin_install_all(&options);
    wd_standin_fail_call(1, WD_CU_NOT_SUPPORTED);
    warnings = 0;
    wd_log_to(keep_warning, NULL, WD_LOG_WARNING);
    wd_test_ok(wd_device_open_one(&device, "auto", 1, &err), &err);
    assert_int_equal(warnings, 1);
    wd_device_close(device);
    wd_test_ok(wd_device_open_one(&device, "auto", 1, &err), &err);
    assert_non_null(strstr(wd_device_name(device), "cuda:0"));
    wd_device_close(device);
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    assert_int_equal(warnings, 1);
    assert_int_equal(wd_standin_remove(), 0);
}

/* Ranks of a host get as many each. */
static void ranks_share_gpus(void **state)
{
    (void)state;
    wd_err err = {0};
    install(4);
    wd_device_list list = expect("cuda", (int[]){0, 1, 2, 3, -1});
    wd_test_ok(wd_device_list_share(&list, 1, 2, &err), &err);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.device[0].number, 2);
    assert_int_equal(wd_standin_remove(), 0);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        wd_status status;
        const char *message;
    } wrong[] = {
        {"cuda:2", WD_UNSUPPORTED, "cuda:2: expected a GPU below 2"},
        {"cuda:0-2", WD_UNSUPPORTED, "CUDA_VISIBLE_DEVICES"},
        {"cuda:0,0", WD_INVALID_ARGUMENT, "expected each GPU once, found \"0\""},
        {"cuda:1-0", WD_INVALID_ARGUMENT, "found \"1-0\""},
        {"cuda:", WD_INVALID_ARGUMENT, "the number of a GPU"},
        {"cuda:0,", WD_INVALID_ARGUMENT, "the number of a GPU"},
        {"cuda:x", WD_INVALID_ARGUMENT, "found \"x\""},
        {"cuda:1.0", WD_INVALID_ARGUMENT, "found \"1.0\""},
        {"cuda:-1", WD_INVALID_ARGUMENT, "found \"-1\""},
        {"cuda:0@fast", WD_INVALID_ARGUMENT, "found \"fast\""},
        {"cudax", WD_INVALID_ARGUMENT, "found \"cudax\""},
    };
    install(2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wd_device_list list;
        wd_err err = {0};
        wd_test_refused(wd_device_list_parse(&list, wrong[i].text, &err), &err, wrong[i].status,
                        wrong[i].message);
        assert_non_null(strstr(err.message, "--devices"));
    }
    assert_int_equal(wd_standin_remove(), 0);
}

/* Where the driver shows no GPU, or cannot be used, the message says what CUDA_VISIBLE_DEVICES is,
 * and what to do. */
static void why_there_is_no_gpu(void **state)
{
    (void)state;
    enum { SYSTEM_DRIVER_MISMATCH = 803 };
    static const char *const visible[] = {NULL, "7", ""}, *const texts[] = {"cuda", "cuda:0"};
    static const char *const said[] = {"(CUDA_VISIBLE_DEVICES is not set)",
                                       "(CUDA_VISIBLE_DEVICES is \"7\" and hides",
                                       "(CUDA_VISIBLE_DEVICES is \"\" and hides"};
    static const wd_cu_result failures[] = {0, SYSTEM_DRIVER_MISMATCH, WD_CU_SYSTEM_NOT_READY};
    static const char *const why[] = {"the NVIDIA driver shows no GPU to this process",
                                      "after an update of the driver", "nvidia-fabricmanager"};
    for (int i = 0; i < 3 * 2 * 3; i++) {
        wd_device_list list;
        wd_err err = {0};
        const int v = i % 3, t = i / 3 % 2, f = i / 6;
        if (visible[v])
            setenv("CUDA_VISIBLE_DEVICES", visible[v], 1);
        else
            unsetenv("CUDA_VISIBLE_DEVICES");
        install(0);
        if (f) wd_standin_fail_call(1, failures[f]); /* cuInit */
        wd_test_refused(wd_device_list_parse(&list, texts[t], &err), &err, WD_UNSUPPORTED, why[f]);
        assert_non_null(strstr(err.message, said[v]));
        assert_non_null(strstr(err.message, "--devices"));
        assert_non_null(strstr(err.message, "nvidia-smi"));
        assert_non_null(strstr(err.message, "--device cpu"));
        assert_int_equal(wd_standin_remove(), 0);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_by_number),
        cmocka_unit_test(speeds_can_be_stated),
        cmocka_unit_test(auto_takes_gpus_where_there_are_any),
        cmocka_unit_test(auto_says_which_gpus_it_does_not_take),
        cmocka_unit_test(auto_takes_the_processor_if_no_gpu_opens),
        cmocka_unit_test(one_device_is_the_first_usable_gpu),
        cmocka_unit_test(ranks_share_gpus),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(why_there_is_no_gpu),
    };
    return cmocka_run_group_tests_name("device_list", tests, NULL, NULL);
}
