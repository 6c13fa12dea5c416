/* See dev/fill_random.h. One block of numbers is sent to the device, which copies it again and
 * again. */
#include "dev/fill_random.h"

#include "core/memory.h"
#include "core/random.h"
#include "dev/ops.h"

enum { BLOCK = WD_FILL_RANDOM_BLOCK };

/* Copies `rows` times the first `width` numbers of `from` to to[first ...]. */
static void repeat(wd_queue *queue, void *to, wd_dtype type, int64_t first, const void *from,
                   int64_t rows, int64_t width, float scale)
{
    if (!rows || !width) return;
    wd_op_strided_copy(
        queue, &(wd_strided_copy_args){.to = (char *)to + first * (int64_t)wd_dtype_bytes(type),
                                       .from = from,
                                       .to_type = type,
                                       .from_type = WD_F32,
                                       .ndim = 2,
                                       .dim = {rows, width},
                                       .to_stride = {BLOCK, 1},
                                       .from_stride = {0, 1},
                                       .alpha = scale});
}

wd_status wd_fill_random(wd_queue *queue, void *to, wd_dtype type, int64_t count, float scale,
                         wd_err *err)
{
    wd_status status;
    wd_device *device = wd_queue_device(queue);
    float *numbers = NULL;
    void *block = NULL;
    const int64_t rows = count / BLOCK;
    WD_TRY_OUT(wd_alloc((void **)&numbers, BLOCK, sizeof *numbers, "random values", err));
    WD_TRY_OUT(wd_device_alloc(&block, device, BLOCK * sizeof *numbers, "random values", err));
    wd_random_normal(numbers, BLOCK, (wd_random){.seed = 1, .stream = WD_RANDOM_TEST}, 0);
    wd_queue_copy_and_wait(queue, block, numbers, BLOCK * sizeof *numbers);
    repeat(queue, to, type, 0, block, rows, BLOCK, scale);
    repeat(queue, to, type, rows * BLOCK, block, 1, count % BLOCK, scale);
    wd_queue_wait(queue);
out:
    wd_device_free(device, block);
    wd_free(numbers);
    return status;
}
