/* The pool of chords: sums of more velocities than one launch adds, and a ring. */
#include "testing.h"

#include "core/random.h"
#include "distill/chord_pool.h"

enum { WIDTH = 5, CAPACITY = 3, CHORDS = 8, LENGTH = 13 };

static void the_latest_chords_are_there(void **state)
{
    (void)state;
    wd_err err;
    wd_device *device;
    wd_queue *queue;
    wd_chord_pool pool = {0};
    float *data, values[(LENGTH + 1) * WIDTH], expected[CHORDS][2][WIDTH] = {{{0}}};
    wd_test_ok(wd_device_open_guard(&device, 1, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    wd_test_ok(wd_chord_pool_open(&pool, device, CAPACITY, WIDTH, &err), &err);
    wd_test_ok(wd_device_alloc((void **)&data, device, sizeof values, "test", &err), &err);
    for (int i = 0; i < CHORDS; i++) {
        const float *velocity[LENGTH];
        wd_chord chord = {.length = i + 6 <= LENGTH ? i + 6 : LENGTH}; /* one launch, two, three */
        wd_random_normal(values, (LENGTH + 1) * WIDTH,
                         (wd_random){.stream = WD_RANDOM_TEST, .index = (uint64_t)i}, 0);
        memcpy(expected[i][0], values, sizeof expected[i][0]);
        for (int64_t k = 0; k < chord.length; k++) {
            chord.weight[k] = 1 / (float)(2 + k);
            velocity[k] = data + (k + 1) * WIDTH;
            for (int j = 0; j < WIDTH; j++)
                expected[i][1][j] += chord.weight[k] * values[(k + 1) * WIDTH + j];
        }
        wd_queue_copy_and_wait(queue, data, values, sizeof values);
        wd_chord_pool_add(&pool, &chord, data, velocity, queue);
        wd_queue_wait(queue);
    }
    assert_int_equal(pool.count, CHORDS);
    for (int i = CHORDS - CAPACITY; i < CHORDS; i++) {
        const int64_t at = wd_chord_pool_place(&pool, i) * WIDTH;
        float found[2][WIDTH];
        wd_queue_copy_and_wait(queue, found[0], pool.latents + at, sizeof found[0]);
        wd_queue_copy_and_wait(queue, found[1], pool.velocity + at, sizeof found[1]);
        assert_memory_equal(found[0], expected[i][0], sizeof found[0]);
        for (int j = 0; j < WIDTH; j++) assert_float_equal(found[1][j], expected[i][1][j], 1e-6);
    }
    wd_device_free(device, data);
    wd_chord_pool_close(&pool, device);
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
