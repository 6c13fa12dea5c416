/* The pool of chords: sums of more velocities than one launch adds, those of a pair, and a ring. */
#include "testing.h"

#include "core/random.h"
#include "train/targets/chord_pool.h"

enum { WIDTH = 5, CAPACITY = 3, CHORDS = 8, LENGTH = 13 };

static void the_latest_chords_are_there(void **state)
{
    (void)state;
    wd_err err;
    wd_device *device;
    wd_queue *queue;
    wd_chord_pool pool = {0};
    float *data, values[2][LENGTH + 1][WIDTH], expected[CHORDS][2][WIDTH] = {{{0}}};
    wd_test_ok(wd_device_open_guard(&device, 1, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    wd_test_ok(wd__chord_pool_open(&pool, device, CAPACITY, WIDTH, &err), &err);
    wd_test_ok(wd_device_alloc((void **)&data, device, sizeof values, "test", &err), &err);
    for (int i = 0; i < CHORDS; i++) {
        wd_chord_block block[2];
        wd_chord chord = {.length = i + 6 <= LENGTH ? i + 6 : LENGTH, /* one launch, and more */
                          .gain = i % 2 ? 0.25f : 0,
                          .sigma = 0.5f};
        wd_random_normal(values[0][0], (int64_t)(sizeof values / sizeof(float)),
                         (wd_random){.stream = WD_RANDOM_TEST, .index = (uint64_t)i}, 0);
        memcpy(expected[i][0], values, sizeof expected[i][0]);
        for (int b = 0; b < 2; b++) {
            const float *from = data + b * (LENGTH + 1) * WIDTH;
            const float sign = b ? -1 : 1, factor = (b ? 0 : 1) + sign * chord.gain;
            block[b].latents = from;
            for (int j = 0; j < WIDTH; j++)
                expected[i][1][j] -= sign * chord.gain / chord.sigma * values[b][0][j];
            for (int64_t k = 0; k < chord.length; k++) {
                chord.weight[k] = 1 / (float)(2 + k);
                block[b].velocity[k] = from + (k + 1) * WIDTH;
                for (int j = 0; j < WIDTH; j++)
                    expected[i][1][j] += factor * chord.weight[k] * values[b][k + 1][j];
            }
        }
        wd_queue_copy_and_wait(queue, data, values, sizeof values);
        wd__chord_pool_add(&pool, &chord, &block[0], &block[1], queue);
        wd_queue_wait(queue);
    }
    assert_int_equal(pool.count, CHORDS);
    for (int i = CHORDS - CAPACITY; i < CHORDS; i++) {
        const int64_t at = wd__chord_pool_place(&pool, i) * WIDTH;
        float found[2][WIDTH];
        wd_queue_copy_and_wait(queue, found[0], pool.latents + at, sizeof found[0]);
        wd_queue_copy_and_wait(queue, found[1], pool.velocity + at, sizeof found[1]);
        assert_memory_equal(found[0], expected[i][0], sizeof found[0]);
        for (int j = 0; j < WIDTH; j++) assert_float_equal(found[1][j], expected[i][1][j], 1e-6);
    }
    wd_device_free(device, data);
    wd__chord_pool_close(&pool, device);
    wd_queue_close(queue);
    assert_int_equal(wd_device_bytes(device), 0);
    wd_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_latest_chords_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
