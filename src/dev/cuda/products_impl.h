/* What products.c (launches) and products_plan.c (algorithms) share, and products_check.c asks. */
#ifndef WD_DEV_CUDA_PRODUCTS_IMPL_H
#define WD_DEV_CUDA_PRODUCTS_IMPL_H

#include <pthread.h>

#include "dev/cuda/library.h"
#include "dev/cuda/product_key.h"

/* How cuBLASLt computes the products of one key. Its a is our b, and its b our a: it counts
 * matrices column by column, so that it sees ours transposed, and makes cT = bT aT. */
typedef struct wd_product_plan_lt {
    wd_product_key key;
    wd_lt_product product;
    wd_lt_layout our_b, our_a, our_c;
    wd_lt_algorithm algorithm;
    int64_t rows;           /* that the layouts have now */
    size_t workspace_bytes; /* that the algorithm takes for so many */
    bool refused;           /* cuBLASLt has no algorithm: our own kernel makes the product */
} wd_product_plan_lt;

struct wd_cuda_products {
    const wd_cuda_gpu *gpu;
    const wd_cuda_lt *lt;
    wd_lt_handle handle;
    wd_product_rule rule;
    pthread_mutex_t lock;      /* of the plans, whose layouts follow the number of rows */
    wd_product_plan_lt **plan; /* every one, in the order in which they were first used */
    int64_t plans;
};

/* The plan of a product that is neither staged nor cut, with layouts of its number of rows unless
 * it is refused; the lock is held. WD_UNSUPPORTED: its algorithm does not take this number of rows,
 * or takes more than `room` bytes of workspace for it. */
wd_status wd_product_plan_find(wd_product_plan_lt **out, wd_cuda_products *products,
                               const wd_matmul_args *args, size_t room, wd_err *err);
void wd_product_plans_close(wd_cuda_products *products);

/* Finds out by numbers what `products->rule` says. */
wd_status wd_products_check(wd_cuda_products *products, wd_err *err);

/* Fails with `status`: "cuBLASLt refused WHAT (m x n x k, dtypes): NAME OF REFUSAL", and what to
 * do.
 */
wd_status wd_products_refused(const wd_cuda_products *products, wd_status status,
                              wd_lt_status refusal, const char *what, const wd_matmul_args *args,
                              wd_err *err);

#endif
