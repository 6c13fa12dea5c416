/* Workspace of matrix products, attention and convolutions, the same for every instruction set. It
 * grows with the number of threads: each has its own packed operands. */
#include "dev/cpu/isa/isa.h"
#include "dev/cpu/parallel.h"
#include "dev/cpu/product_plan.h"

size_t wd_isa_matmul_workspace(const void *args)
{
    const wd_matmul_args *a = args;
    wd_product_plan p = wd_product_plan_make(a->batch, a->m, a->n, a->k, wd_parallel_threads());
    return (size_t)p.parts * p.part_bytes;
}
