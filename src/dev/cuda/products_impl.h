/* What products.c (launches, and products as text), products_plan.c (algorithms) and
 * products_check.c (the check at open) share. */
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
    bool chosen;            /* there is an algorithm */
    bool launched;          /* cuBLASLt has made such a product */
    bool refused;           /* cuBLASLt has no algorithm, or refused to launch it: our own kernel
                             * makes the product, from now on */
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

/* ---- products_plan.c ---- */

/* The plan of a product that is neither staged nor cut, with layouts of its number of rows unless
 * it is refused; the lock is held. WD_UNSUPPORTED: its algorithm does not take this number of rows,
 * or takes more than `room` bytes of workspace for it. */
wd_status wd__product_plan_find(wd_product_plan_lt **out, wd_cuda_products *products,
                                const wd_matmul_args *args, size_t room, wd_err *err);

/* Leaves all later products of the plan to our own kernel if `refusal` of a launch says that
 * cuBLASLt does not make them, and warns once; the lock is held. False: `refusal` is a fault. */
bool wd__product_plan_give_up(wd_product_plan_lt *plan, const wd_cuda_products *products,
                              wd_lt_status refusal, const wd_matmul_args *args);
void wd__product_plans_close(wd_cuda_products *products);

/* ---- products_check.c ---- */

/* Finds out by numbers what `products->rule` says; `device` as of wd__cuda_products_open. */
wd_status wd__products_check(wd_cuda_products *products, wd_device *device, wd_err *err);

/* ---- products.c: products as text ---- */

/* Fails with `status`: "cuBLASLt refused WHAT of a product (dtypes, shape, algorithm): NAME OF
 * REFUSAL", and what to do. `plan` NULL: without algorithm. */
wd_status wd__products_refused(const wd_cuda_products *products, wd_status status,
                               wd_lt_status refusal, const char *what, const wd_matmul_args *args,
                               const wd_product_plan_lt *plan, wd_err *err);

/* Warns that our own kernel makes the products of `plan`. */
void wd__products_warn(const wd_cuda_products *products, wd_lt_status refusal,
                       const wd_matmul_args *args, const wd_product_plan_lt *plan);

#endif
