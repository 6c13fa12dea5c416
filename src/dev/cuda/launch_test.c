/* How kernels are launched: within what every GPU allows, with grids that depend on the arguments
 * alone. That the launches compute what they should is tested by src/dev/cpu's tests of kernels. */
#include "testing.h"

#include "dev/cuda/kernels/args.h"
#include "dev/cuda/launch.h"
#include "standin/blocks.h"
#include "standin/inside.h"

enum { THREADS_MAX = 256, SHARED_MAX = 48 * 1024, LAUNCHES_MAX = 4 };

typedef struct launches {
    int count;
    wd_cuda_kernel kernel[LAUNCHES_MAX];
    unsigned grid[LAUNCHES_MAX][3], block[LAUNCHES_MAX][3];
} launches;

static void note(void *context, wd_cuda_kernel kernel, const unsigned grid[3],
                 const unsigned block[3], size_t shared_bytes, const void *args, size_t bytes)
{
    launches *l = context;
    unsigned threads = block[0] * block[1] * block[2];
    assert_true(l->count < LAUNCHES_MAX);
    assert_true(threads > 0 && threads <= THREADS_MAX && threads % 32 == 0);
    assert_true(grid[0] > 0 && grid[1] > 0 && grid[1] <= 65535 && grid[2] == 1);
    assert_true(shared_bytes <= SHARED_MAX);
    assert_true(args && bytes <= 4096);
    memcpy(l->grid[l->count], grid, sizeof l->grid[0]);
    memcpy(l->block[l->count], block, sizeof l->block[0]);
    l->kernel[l->count++] = kernel;
}

static launches launches_of(wd_op op, const void *args)
{
    static char workspace[1 << 22];
    launches l = {0};
    assert_true(wd__cuda_kernels_take(op, args));
    assert_true(wd__cuda_kernels_workspace(op, args) <= sizeof workspace);
    wd__cuda_kernels_run(op, args, workspace, note, &l);
    return l;
}

static void rows_of_any_width(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 96, 1536, 5120, 8192, 8200, 100000};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        char data[4];
        wd_rmsnorm_args a = {data,      data, data, NULL, NULL, WD_F32, WD_F32, 1000,
                             widths[i], 2,    1,    0,    0,    1e-6f,  false};
        launches l = launches_of(WD_OP_RMSNORM, &a);
        assert_int_equal(l.count, 1);
        assert_int_equal(l.kernel[0], WD_CUDA_rmsnorm);
        assert_true(l.grid[0][0] >= 125 && l.grid[0][0] <= 1000);
        assert_int_equal(wd__cuda_kernels_workspace(WD_OP_RMSNORM, &a), 0);
    }
}

/* All but a warp of a row's threads wait while it adds: so a row has few of them, and a block as
 * many rows as shared memory holds. */
static void blocks_have_several_rows(void **state)
{
    (void)state;
    char data[4];
    wd_layernorm_args a = {.y = data, .x = data, .type = WD_BF16, .rows = 1000, .width = 1536};
    wd_layernorm_backward_args b = {.dx = data, .dy = data, .x = data, .type = WD_BF16};
    b.rows = b.rows_per_sample = 1000;
    b.width = a.width;
    launches l = launches_of(WD_OP_LAYERNORM, &a);
    assert_true(l.block[0][0] == 64 && l.block[0][1] == 4 && l.grid[0][0] == 250);
    l = launches_of(WD_OP_LAYERNORM_BACKWARD, &b); /* keeps x and dy: 12 KiB a row */
    assert_true(l.block[0][0] == 64 && l.block[0][1] == 3 && l.grid[0][0] == 334);
    a.width = 5120;
    l = launches_of(WD_OP_LAYERNORM, &a);
    assert_true(l.block[0][0] == 128 && l.block[0][1] == 2 && l.grid[0][0] == 500);
}

/* A gradient's workspace: [R, 4] and, for every 32 rows of a sample, [2, D]. */
static void workspace_is_counted(void **state)
{
    (void)state;
    char data[4];
    wd_layernorm_backward_args a = {.dx = data,
                                    .dy = data,
                                    .x = data,
                                    .type = WD_BF16,
                                    .rows = 2 * 33,
                                    .width = 64,
                                    .rows_per_sample = 33,
                                    .sample_stride = 64};
    assert_int_equal(wd__cuda_kernels_workspace(WD_OP_LAYERNORM_BACKWARD, &a),
                     4 * (66 * 4 + 2 * 2 * 2 * 64));
    launches l = launches_of(WD_OP_LAYERNORM_BACKWARD, &a);
    assert_int_equal(l.count, 3);
    assert_int_equal(l.kernel[0], WD_CUDA_layernorm_backward_rows);
    assert_int_equal(l.kernel[1], WD_CUDA_layernorm_backward_columns);
    assert_int_equal(l.kernel[2], WD_CUDA_column_sums_finish);
    assert_int_equal(l.grid[1][0], 4); /* groups of 32 rows and of 1 */
}

/* Heads of any size that shared memory holds. */
static void attention_of_large_heads(void **state)
{
    (void)state;
    static const int64_t heads[] = {1, 64, 128, 384, 640, 1024, 2048};
    char data[4];
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        wd_attention_args a = {.o = data,
                               .q = data,
                               .k = data,
                               .v = data,
                               .samples = 2,
                               .kv_samples = 1,
                               .heads = 3,
                               .head_dim = heads[i],
                               .q_tokens = 100,
                               .kv_tokens = 77};
        wd_attention_backward_args b = {.dq = data,
                                        .samples = 2,
                                        .heads = 3,
                                        .head_dim = heads[i],
                                        .q_tokens = 100,
                                        .kv_tokens = 77};
        assert_int_equal(launches_of(WD_OP_ATTENTION, &a).count, 1);
        assert_int_equal(launches_of(WD_OP_ATTENTION_BACKWARD, &b).count, 2);
        a.head_dim = b.head_dim = 2049;
        assert_false(wd__cuda_kernels_take(WD_OP_ATTENTION, &a));
        assert_false(wd__cuda_kernels_take(WD_OP_ATTENTION_BACKWARD, &b));
    }
}

static void nothing_to_do_launches_nothing(void **state)
{
    (void)state;
    assert_int_equal(launches_of(WD_OP_CAST, &(wd_cast_args){0}).count, 0);
    assert_int_equal(launches_of(WD_OP_RESIDUAL, &(wd_residual_args){.width = 8}).count, 0);
    assert_int_equal(
        launches_of(WD_OP_RMSNORM_BACKWARD, &(wd_rmsnorm_backward_args){.width = 8}).count, 0);
    assert_int_equal(launches_of(WD_OP_MATMUL, &(wd_matmul_args){.m = 3, .n = 5}).count, 0);
}

/* ---- who writes what ---- */

enum { BLOCK = 256, FLAT = 3 * 8 * BLOCK };

static const wd_fill_args *filled;
static int writer[FLAT]; /* the thread of the block that wrote an element; -1: none yet */

/* A thread of the kernel, and what it wrote. */
static void fill_and_look(const void *args)
{
    extern void wd_kernel_fill(const void *kernel_args);
    wd_kernel_fill(args);
    for (int i = 0; i < FLAT; i++) {
        const bool written = filled->type == WD_F32 ? ((const float *)filled->to)[i] != 0
                                                    : ((const uint16_t *)filled->to)[i] != 0;
        if (written && writer[i] < 0) writer[i] = (int)wd_standin_thread_index.x;
    }
}

static void run_and_look(void *context, wd_cuda_kernel kernel, const unsigned grid[3],
                         const unsigned block[3], size_t shared_bytes, const void *args,
                         size_t bytes)
{
    (void)bytes;
    assert_int_equal(kernel, WD_CUDA_fill);
    assert_int_equal(block[0], BLOCK);
    wd_standin_run_function(context, fill_and_look, grid, block, shared_bytes, args);
}

/* What the threads of a warp write at once lies side by side: 16 bytes each. */
static void warps_write_side_by_side(void **state)
{
    (void)state;
    static const wd_dtype types[] = {WD_F32, WD_BF16};
    wd_standin *standin = wd_standin_open(WD_STANDIN_SHUFFLED, 3);
    for (int t = 0; t < 2; t++) {
        static _Alignas(16) float to[FLAT];
        const wd_fill_args a = {.to = to, .type = types[t], .count = FLAT, .value = 1};
        memset(to, 0, sizeof to);
        memset(writer, -1, sizeof writer);
        filled = &a;
        wd__cuda_kernels_run(WD_OP_FILL, &a, NULL, run_and_look, standin);
        for (int i = 0; i < FLAT; i++)
            assert_int_equal(writer[i], (types[t] == WD_F32 ? i / 4 : i / 8) % BLOCK);
    }
    wd_standin_close(standin);
}

/* ---- a long sum ---- */

enum { CHUNKS = 2 * 4096 + 77 };

/* Runs the last kernel only, on sums of chunks that give other bits in another order. */
static void run_finish(void *context, wd_cuda_kernel kernel, const unsigned grid[3],
                       const unsigned block[3], size_t shared_bytes, const void *args, size_t bytes)
{
    const wd_cuda_squares_finish *a = args;
    if (kernel != WD_CUDA_squares_finish) return;
    assert_int_equal(a->chunks, CHUNKS);
    for (int i = 0; i < CHUNKS; i++)
        ((double *)(uintptr_t)a->sums)[i] = ldexp(i % 2 ? 1 : -1, (i * 37 + i / 4096) % 101);
    wd_standin_run(context, kernel, grid, block, shared_bytes, args, bytes);
}

/* More sums of chunks than the kernel brings into shared memory at once. */
static void all_chunks_are_added_in_order(void **state)
{
    (void)state;
    static double sums[CHUNKS];
    for (int order = 0; order < WD_STANDIN_ORDERS; order++) {
        wd_standin *standin = wd_standin_open((wd_standin_order)order, 3);
        float sum = 0;
        double expected = 0;
        const float nothing = 0;
        const wd_sum_squares_args a = {
            .sum = &sum, .x = &nothing, .count = (int64_t)CHUNKS * WD_SUM_CHUNK};
        assert_int_equal(wd__cuda_kernels_workspace(WD_OP_SUM_SQUARES, &a), sizeof sums + 8);
        wd__cuda_kernels_run(WD_OP_SUM_SQUARES, &a, sums, run_finish, standin);
        for (int i = 0; i < CHUNKS; i++) expected += sums[i];
        assert_true(expected != 0 && sum == (float)expected);
        wd_standin_close(standin);
    }
}

static void kernels_have_names(void **state)
{
    (void)state;
    assert_string_equal(wd__cuda_kernel_symbol(WD_CUDA_layernorm), "wd_kernel_layernorm");
    for (int i = 0; i < WD_CUDA_KERNEL_COUNT; i++)
        assert_memory_equal(wd__cuda_kernel_symbol((wd_cuda_kernel)i), "wd_kernel_", 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_any_width),
        cmocka_unit_test(blocks_have_several_rows),
        cmocka_unit_test(workspace_is_counted),
        cmocka_unit_test(attention_of_large_heads),
        cmocka_unit_test(nothing_to_do_launches_nothing),
        cmocka_unit_test(warps_write_side_by_side),
        cmocka_unit_test(all_chunks_are_added_in_order),
        cmocka_unit_test(kernels_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
