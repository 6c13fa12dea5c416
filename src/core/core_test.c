/* Tests of core: known answers, limits, and the n-th allocation failing. */
#include "testing.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/host.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/tensor.h"
#include "sanitized.h"
#include "core/text.h"

/* Every finite f16 is unchanged after conversion to f32 and back; ties are rounded to even. */
static void f16_round_trip(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 0x10000; v++) {
        float f = wd_f16_to_f32((uint16_t)v);
        if (isnan(f)) continue;
        assert_int_equal(wd_f32_to_f16(f), v);
        uint32_t magnitude = v & 0x7fff;
        if (magnitude >= 0x7bff) continue;
        float next = wd_f16_to_f32((uint16_t)(v + 1)), half = f + (next - f) / 2;
        assert_int_equal(wd_f32_to_f16(half), v & 1 ? v + 1 : v);
    }
    assert_int_equal(wd_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(wd_f32_to_f16(65520.0f), 0x7c00);
    assert_true(isnan(wd_f16_to_f32(wd_f32_to_f16(NAN))));
}

static void bf16_rounds_to_even(void **state)
{
    (void)state;
    assert_int_equal(wd_f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(wd_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);           /* half: stays even */
    assert_int_equal(wd_f32_to_bf16(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82); /* half: goes to even */
    assert_int_equal(wd_f32_to_bf16(3.4e38f), 0x7f80);
    assert_true(isnan(wd_bf16_to_f32(wd_f32_to_bf16(NAN))));
    wd_dtype dtype;
    assert_true(wd_dtype_parse(&dtype, "bfloat16") && dtype == WD_BF16);
    assert_true(wd_dtype_parse(&dtype, "F16") && dtype == WD_F16);
    assert_false(wd_dtype_parse(&dtype, "float8"));
}

/* The known answers published with Random123 (kat_vectors, philox 4x32, 10 rounds). */
static void philox_known_answers(void **state)
{
    (void)state;
    uint32_t out[4];
    wd_random_bits(out, (wd_random){0}, 0);
    const uint32_t zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(out, zeros, sizeof out);
    /* counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0 */
    wd_random key = {.seed = 0x299f31d0a4093822u, .stream = 0, .index = 0x0370734413198a2eu};
    wd_random_bits(out, key, 0x85a308d3243f6a88u);
    const uint32_t pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    assert_memory_equal(out, pi, sizeof out);
}

static void normal_is_normal_and_sliceable(void **state)
{
    (void)state;
    enum { N = 40000 };
    static float x[N];
    wd_random key = {.seed = 7, .stream = WD_RANDOM_TEST, .index = 3};
    wd_random_normal(x, N, key, 0);
    double mean = 0, square = 0;
    for (int i = 0; i < N; i++) mean += x[i], square += (double)x[i] * x[i];
    assert_true(fabs(mean / N) < 0.02 && fabs(square / N - 1) < 0.03);
    float slice[101];
    wd_random_normal(slice, 101, key, 1003);
    assert_memory_equal(slice, x + 1003, sizeof slice);
    wd_random other = key;
    other.stream = WD_RANDOM_SIGMA;
    wd_random_normal(slice, 101, other, 1003);
    assert_memory_not_equal(slice, x + 1003, sizeof slice);
}

static void below_stays_below(void **state)
{
    (void)state;
    wd_random key = {.seed = 1, .stream = WD_RANDOM_TEST};
    int seen[7] = {0};
    for (uint64_t i = 0; i < 7000; i++) seen[wd_random_below(key, i, 7)]++;
    for (int i = 0; i < 7; i++) assert_in_range(seen[i], 850, 1150);
}

static void arena_measures_and_runs_alike(void **state)
{
    (void)state;
    wd_arena dry = wd_arena_over(NULL, SIZE_MAX);
    static char memory[1024] __attribute__((aligned(64)));
    wd_arena real = wd_arena_over(memory, sizeof memory);
    for (int i = 0; i < 3; i++) {
        size_t mark = wd_arena_mark(&dry);
        char *a = wd_arena_push(&dry, 100), *b = wd_arena_push(&real, 100);
        assert_int_equal((uintptr_t)a, (uintptr_t)(b - memory));
        wd_arena_push(&dry, 65);
        wd_arena_push(&real, 65);
        wd_arena_reset(&dry, mark);
        wd_arena_reset(&real, mark);
    }
    assert_int_equal(dry.peak, 256);
    assert_int_equal(real.peak, 256);
    assert_int_equal(real.used, 0);
}

static void nth_allocation_fails(void **state)
{
    (void)state;
    void *a = NULL, *b = NULL;
    wd_err err;
    wd__alloc_fail_at(2);
    assert_int_equal(wd_alloc(&a, 4, 4, "a", &err), WD_OK);
    assert_int_equal(wd_alloc(&b, 4, 4, "the second", &err), WD_OUT_OF_MEMORY);
    assert_non_null(strstr(err.message, "the second"));
    assert_int_equal(wd_alloc(&b, 4, 4, "b", &err), WD_OK);
    wd_free(a);
    wd_free(b);
    wd__alloc_fail_from(2);
    assert_int_equal(wd_alloc(&a, 4, 4, "a", &err), WD_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(wd_alloc(&b, 4, 4, "all later ones", &err), WD_OUT_OF_MEMORY);
    wd__alloc_fail_at(0);
    assert_int_equal(wd_alloc(&b, 4, 4, "b", &err), WD_OK);
    wd_free(a);
    wd_free(b);
    assert_int_equal(wd_alloc(&a, SIZE_MAX / 2, 3, "too much", &err), WD_OUT_OF_MEMORY);
}

static void errors_say_where(void **state)
{
    (void)state;
    wd_err err;
    assert_int_equal(wd_fail(&err, WD_NOT_FOUND, "tensor %s", "x"), WD_NOT_FOUND);
    assert_int_equal(wd_fail_in(&err, "file %d", 3), WD_NOT_FOUND);
    assert_string_equal(err.message, "file 3: tensor x");
    char text[64];
    const int64_t dim[3] = {3, 16, 1};
    assert_string_equal(wd_dims_text(text, sizeof text, dim, 3), "[3, 16, 1]");
    assert_string_equal(wd_dims_text(text, sizeof text, dim, 0), "[]");
    wd_dims_text(text, 5, dim, 3); /* cut, not overrun */
    assert_int_equal(strlen(text), 4);
}

/* Also blocks of memory that was freed before, and blocks that were moved by a resize. */
static void blocks_are_aligned(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 4 << 20; bytes = 3 * bytes + 1) {
        unsigned char *block = NULL;
        for (int again = 0; again < 2; again++) {
            assert_int_equal(wd_alloc((void **)&block, bytes, 1, "a block", NULL), WD_OK);
            assert_int_equal((uintptr_t)block % 64, 0);
            for (size_t i = 0; i < bytes; i++) assert_int_equal(block[i], 0);
            for (size_t i = 0; i < bytes; i++) block[i] = (unsigned char)(i * 7);
            if (!again) wd_free(block);
        }
        for (size_t more = bytes; more < 40 * bytes; more *= 3) {
            assert_int_equal(wd_resize((void **)&block, more, 1, "a block", NULL), WD_OK);
            assert_int_equal((uintptr_t)block % 64, 0);
            for (size_t i = 0; i < bytes; i++) assert_int_equal(block[i], (unsigned char)(i * 7));
        }
        wd_free(block);
    }
}

static void memory_is_metered(void **state)
{
    (void)state;
    void *a = NULL, *b = NULL;
    const int64_t before = wd_memory_held();
    wd_memory_restart_peak();
    assert_int_equal(wd_alloc(&a, 1000, 100, "a", NULL), WD_OK);
    assert_int_equal(wd_alloc(&b, 1000, 50, "b", NULL), WD_OK);
    const int64_t both = wd_memory_held() - before;
    assert_in_range(both, 150000, 160000);
    wd_free(a);
    assert_int_equal(wd_resize(&b, 1000, 60, "b", NULL), WD_OK);
    assert_in_range(wd_memory_held() - before, 60000, 65000);
    assert_int_equal(wd_memory_peak() - before, both);
    wd_free(b);
    wd_free(NULL);
    assert_int_equal(wd_memory_held(), before);
    assert_int_equal(wd_alloc(&a, 1000, 1, "a", NULL), WD_OK);
    const int64_t own = wd_memory_held() - before;
    wd_free(a);
    wd_memory_hold_elsewhere(1000, true);
    assert_int_equal(wd_memory_held() - before, own);
    wd_memory_hold_elsewhere(1000, false);
    assert_int_equal(wd_memory_held(), before);
    wd_memory_restart_peak();
    assert_int_equal(wd_memory_peak(), before);
}

/* The block is larger than the memory of any machine, and few of its pages are touched. */
static void planned_blocks_may_be_larger_than_memory(void **state)
{
    (void)state;
    const size_t bytes = (size_t)1 << 44;
    const int64_t before = wd_memory_held();
    char *block = NULL;
    wd_err err;
    if (WD_TEST_SANITIZED) wd_test_skip("a sanitizer has memory of its own");
    assert_int_equal(wd_alloc((void **)&block, bytes, 1, "a block", &err), WD_OUT_OF_MEMORY);
    wd_memory_plan_only(true);
    assert_int_equal(wd_alloc((void **)&block, bytes, 1, "a block", &err), WD_OK);
    assert_int_equal((uintptr_t)block % 64, 0);
    block[9] = block[bytes - 1] = 7;
    assert_in_range(wd_memory_held() - before, bytes, bytes + 64);
    wd_memory_plan_only(false);
    assert_int_equal(wd_resize((void **)&block, 10, 1, "a block", &err), WD_OK);
    assert_int_equal(block[9], 7);
    assert_in_range(wd_memory_held() - before, 10, 10 + 64);
    wd_free(block);
    assert_int_equal(wd_memory_held(), before);
}

enum { BYTES = 64 << 20, SLACK = 8 << 20 };

/* A sanitizer allocates memory of its own, so its figures are larger. */
static void check_memory(size_t found, size_t expected)
{
    if (!WD_TEST_SANITIZED) assert_in_range(found, expected - SLACK, expected + SLACK);
}

/* Resident memory grows and shrinks with what the process allocates and frees. */
static void resident_memory_is_known(void **state)
{
    (void)state;
    const size_t before = wd_host_memory_own();
    void *block = NULL;
    if (!before) wd_test_skip("there is no /proc");
    assert_int_equal(wd_alloc(&block, BYTES, 1, "a block", NULL), WD_OK);
    memset(block, 1, BYTES); /* pages of a large block become resident when they are touched */
    assert_true(wd_host_memory_own() >= before + BYTES - SLACK);
    wd_free(block);
    wd_host_memory_trim();
    assert_true(wd_host_memory_own_peak() >= before + BYTES - SLACK);
    if (!WD_TEST_SANITIZED) assert_true(wd_host_memory_own() <= before + SLACK);
}

/* Memory that two processes share counts one half for each. */
static void shared_memory_is_divided(void **state)
{
    (void)state;
    int touched[2], over[2];
    char byte = 0;
    const size_t before = wd_host_memory_own();
    if (!before) wd_test_skip("there is no /proc");
    char *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    memset(data, 1, BYTES);
    check_memory(wd_host_memory_own(), before + BYTES);
    assert_int_equal(pipe(touched) | pipe(over), 0);
    const pid_t other = fork();
    if (!other) {
        memset(data, 2, BYTES);
        _exit(write(touched[1], &byte, 1) != 1 || read(over[0], &byte, 1) != 1);
    }
    assert_int_equal(read(touched[0], &byte, 1), 1);
    check_memory(wd_host_memory_own(), before + BYTES / 2);
    assert_int_equal(write(over[1], &byte, 1), 1);
    assert_int_equal(waitpid(other, NULL, 0), other);
    for (int i = 0; i < 2; i++) close(touched[i]), close(over[i]);
    munmap(data, BYTES);
}

/* A meter sees memory that was allocated and freed since it was opened, and of shared memory this
 * process's part. */
static void host_meter_sees_the_most(void **state)
{
    (void)state;
    enum { SHARERS = 4, PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS };
    static const int kinds[] = {PRIVATE, MAP_SHARED | MAP_ANONYMOUS};
    if (!wd_host_memory_own()) wd_test_skip("there is no /proc");
    for (int i = 0; i < 2; i++) {
        wd_host_meter *meter;
        const size_t before = wd_host_memory_part(SHARERS);
        const size_t most = before + (kinds[i] == PRIVATE ? BYTES : BYTES / SHARERS);
        assert_int_equal(wd_host_meter_open(&meter, SHARERS, NULL), WD_OK);
        char *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, kinds[i], -1, 0);
        assert_ptr_not_equal(data, MAP_FAILED);
        memset(data, 1, BYTES);
        while (wd_host_meter_peak(meter) < most - SLACK) usleep(1000);
        munmap(data, BYTES);
        usleep(50 * 1000);
        check_memory(wd_host_meter_peak(meter), most);
        wd_host_meter_close(meter);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_round_trip),
        cmocka_unit_test(bf16_rounds_to_even),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(normal_is_normal_and_sliceable),
        cmocka_unit_test(below_stays_below),
        cmocka_unit_test(arena_measures_and_runs_alike),
        cmocka_unit_test(nth_allocation_fails),
        cmocka_unit_test(blocks_are_aligned),
        cmocka_unit_test(memory_is_metered),
        cmocka_unit_test(planned_blocks_may_be_larger_than_memory),
        cmocka_unit_test(resident_memory_is_known),
        cmocka_unit_test(shared_memory_is_divided),
        cmocka_unit_test(host_meter_sees_the_most),
        cmocka_unit_test(errors_say_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
