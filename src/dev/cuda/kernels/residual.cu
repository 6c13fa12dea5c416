/* y = x + branch gate, its gradients, and the second half of all sums over rows. */
#include "dev/cuda/kernels/args.h"
#include "dev/cuda/kernels/columns.cuh"
#include "dev/cuda/kernels/rows.cuh"

WD_KERNEL(residual, wd_residual_args)
{
    int64_t r = row_index();
    int width = (int)a.width;
    if (r >= a.rows) return;
    int64_t sample = sample_of(r, a.rows_per_sample) * a.sample_stride;
    for (int at = row_first(); at < width; at += row_step()) {
        int n = eight_below(at, width);
        float x[EIGHT], branch[EIGHT], gate[EIGHT];
        const eight of_x = fetch_eight(a.x, a.type, r * width + at, n);
        const eight of_branch = fetch_eight(a.branch, a.type, r * width + at, n);
        widen_eight(x, of_x, a.type);
        widen_eight(branch, of_branch, a.type);
        if (a.gate) {
            load_eight(gate, a.gate, WD_F32, sample + at, n);
            EACH_OF_EIGHT (i) branch[i] = branch[i] * gate[i];
        }
        EACH_OF_EIGHT (i) x[i] = x[i] + branch[i];
        store_eight(a.y, a.type, r * width + at, x, n);
    }
}

WD_COLUMNS_KERNEL(residual_backward_columns, wd_cuda_residual_backward)
{
    const wd_residual_backward_args &op = a.op;
    columns c = columns_of(op.rows_per_sample, op.width);
    if (c.n <= 0) return;
    float dgate[EIGHT] = {0}, gate[EIGHT];
    load_eight(gate, op.gate, WD_F32,
               sample_of(c.row, op.rows_per_sample) * op.sample_stride + c.at, c.n);
    const column_of arrays[] = {{op.dy, op.type, op.width}, {op.branch, op.type, op.width}};
    each_row(c, arrays, nothing_of_row, [&](int64_t r, float v[2][EIGHT], nothing) {
        float *dy = v[0], *branch = v[1];
        EACH_OF_EIGHT (i) {
            dgate[i] += dy[i] * branch[i];
            branch[i] = dy[i] * gate[i];
        }
        store_eight(op.dbranch, op.type, r * op.width + c.at, branch, c.n);
    });
    columns_store(a.sums, c, 1, 0, op.width, dgate);
}

enum { GROUPS_AT_ONCE = 16 };

/* A thread has one column of one output of one sample. It fetches the sums of several groups before
 * it adds the first of them. */
WD_KERNEL(column_sums_finish, wd_cuda_column_sums)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t column = at % a.width, output = at / a.width % a.outputs;
    int64_t sample = at / a.width / a.outputs;
    if (sample >= a.samples) return;
    float *out = output ? a.out[1] : a.out[0];
    if (!out) return;
    out += sample * a.out_stride + column;
    const float *sums = a.sums + (sample * a.per_sample * a.outputs + output) * a.width + column;
    const int64_t step = a.outputs * a.width;
    float total = a.add ? *out : 0, fetched[GROUPS_AT_ONCE];
    int64_t group = 0;
    for (; group + GROUPS_AT_ONCE <= a.per_sample; group += GROUPS_AT_ONCE) {
        WD_UNROLL for (int i = 0; i < GROUPS_AT_ONCE; i++) fetched[i] = sums[(group + i) * step];
        WD_UNROLL for (int i = 0; i < GROUPS_AT_ONCE; i++) total += fetched[i];
    }
    for (; group < a.per_sample; group++) total += sums[group * step];
    *out = total;
}
