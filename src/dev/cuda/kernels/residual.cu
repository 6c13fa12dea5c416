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
        load_eight(x, a.x, a.type, r * width + at, n);
        load_eight(branch, a.branch, a.type, r * width + at, n);
        if (a.gate) {
            load_eight(gate, a.gate, WD_F32, sample + at, n);
            EACH_OF_EIGHT (i) branch[i] = branch[i] * gate[i];
        }
        EACH_OF_EIGHT (i) x[i] = x[i] + branch[i];
        store_eight(a.y, a.type, r * width + at, x, n);
    }
}

WD_KERNEL(residual_backward_columns, wd_cuda_residual_backward)
{
    const wd_residual_backward_args &op = a.op;
    columns c = columns_of(op.rows_per_sample, op.width);
    if (c.n <= 0) return;
    float dgate[EIGHT] = {0}, gate[EIGHT];
    load_eight(gate, op.gate, WD_F32,
               sample_of(c.row, op.rows_per_sample) * op.sample_stride + c.at, c.n);
    for (int64_t r = c.row; r < c.end; r++) {
        int64_t at = r * op.width + c.at;
        float dy[EIGHT], branch[EIGHT];
        load_eight(dy, op.dy, op.type, at, c.n);
        load_eight(branch, op.branch, op.type, at, c.n);
        EACH_OF_EIGHT (i) {
            dgate[i] += dy[i] * branch[i];
            branch[i] = dy[i] * gate[i];
        }
        store_eight(op.dbranch, op.type, at, branch, c.n);
    }
    columns_store(a.sums, c, 1, 0, op.width, dgate);
}

/* A thread has one column of one output of one sample. */
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
    float total = a.add ? *out : 0;
    for (int64_t group = 0; group < a.per_sample; group++)
        total += sums[group * a.outputs * a.width];
    *out = total;
}
