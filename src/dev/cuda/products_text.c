/* What messages and reports say of a product and of the algorithm that cuBLASLt computes it with.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/require.h"
#include "dev/cuda/products_impl.h"

enum { TEXT = 640 }; /* bytes, for every text here: numbers have at most 20 digits */

/* Appends to `text`, which has TEXT bytes. */
__attribute__((format(printf, 2, 3))) static void add(char *text, const char *format, ...)
{
    const size_t at = strlen(text);
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text + at, TEXT - at, format, args);
    va_end(args);
    WD_REQUIRE(length >= 0 && (size_t)length < TEXT - at, "the text of a product is too long");
}

/* "BF16 x BF16 -> BF16, m 8, n 24, k 16, b transposed, bias, GELU"; `rows` 0: without m. */
static void add_product(char *text, const wd_product_key *k, int64_t rows)
{
    const char *type = wd_dtype_file_name((wd_dtype)k->type);
    add(text, "%s x %s -> %s", type, type, wd_dtype_file_name((wd_dtype)k->c_type));
    if (rows) add(text, ", m %lld", (long long)rows);
    add(text, ", n %lld, k %lld", (long long)k->n, (long long)k->k);
    if (k->batch > 1) add(text, ", batch %lld", (long long)k->batch);
    if (k->transpose_a) add(text, ", a transposed");
    if (k->transpose_b) add(text, ", b transposed");
    add(text, ", lines of %lld %lld %lld", (long long)k->lda, (long long)k->ldb, (long long)k->ldc);
    if (k->align_a < WD_PRODUCT_ALIGN || k->align_b < WD_PRODUCT_ALIGN ||
        k->align_c < WD_PRODUCT_ALIGN || k->align_bias < WD_PRODUCT_ALIGN)
        add(text, " aligned to %d %d %d bytes", k->align_a, k->align_b, k->align_c);
    if (k->bias) add(text, ", bias");
    if (k->act != WD_ACT_NONE) add(text, ", GELU");
    if (k->beta) add(text, ", added to the result");
}

/* ", tile 24", or ", tile unknown" if the library does not say. */
static void add_attribute(char *text, const wd_cuda_lt *lt, const wd_lt_algorithm *algorithm,
                          const char *name, wd_lt_algorithm_attr attribute)
{
    uint32_t value = 0;
    size_t written;
    if (lt->algorithm_get(algorithm, attribute, &value, sizeof value, &written))
        add(text, "%s unknown", name);
    else
        add(text, "%s %u", name, value);
}

static void add_algorithm(char *text, const wd_cuda_lt *lt, const wd_product_plan_lt *plan)
{
    add_attribute(text, lt, &plan->algorithm, "algorithm", WD_LT_ALGORITHM_ID);
    add_attribute(text, lt, &plan->algorithm, ", tile", WD_LT_ALGORITHM_TILE);
    add_attribute(text, lt, &plan->algorithm, ", stages", WD_LT_ALGORITHM_STAGES);
    add_attribute(text, lt, &plan->algorithm, ", split", WD_LT_ALGORITHM_SPLITK_NUM);
    add(text, ", workspace %zu", plan->workspace_bytes);
}

wd_status wd_products_refused(const wd_cuda_products *p, wd_status status, wd_lt_status refusal,
                              const char *what, const wd_matmul_args *a,
                              const wd_product_plan_lt *plan, wd_err *err)
{
    char text[TEXT] = "";
    const wd_product_key key = wd_product_key_of(a);
    add_product(text, &key, a->m);
    if (plan && plan->chosen) {
        add(text, "; ");
        add_algorithm(text, p->lt, plan);
    }
    return wd_fail(err, status,
                   "cuBLASLt %zu refused %s of a product (%s): %s; install another version of "
                   "cuBLASLt, or say --devices cpu (--device cpu) to compute on the processor",
                   p->lt->get_version(), what, text, p->lt->status_name(refusal));
}

void wd_products_warn(const wd_cuda_products *p, wd_lt_status refusal, const wd_matmul_args *a,
                      const wd_product_plan_lt *plan)
{
    char text[TEXT] = "";
    const char *name = p->lt->status_name(refusal);
    add_product(text, &plan->key, a->m);
    if (!plan->chosen) {
        wd_log(WD_LOG_WARNING,
               "cuBLASLt %zu has no algorithm for a product (%s; %s): a kernel of this program "
               "computes it, correctly but slowly; install another version of cuBLASLt",
               p->lt->get_version(), text, name);
        return;
    }
    add(text, "; ");
    add_algorithm(text, p->lt, plan);
    wd_log(WD_LOG_WARNING,
           "cuBLASLt %zu refused to launch a product (%s; %s): a kernel of this program computes "
           "it, correctly but slowly%s; install another version of cuBLASLt",
           p->lt->get_version(), text, name,
           plan->launched ? "; cuBLASLt has computed such products since this program began, and "
                            "their last bits differ"
                          : "");
}

bool wd_cuda_products_describe(wd_cuda_products *p, int64_t i, char *out, size_t bytes)
{
    char text[TEXT] = "";
    pthread_mutex_lock(&p->lock);
    const bool known = i >= 0 && i < p->plans;
    if (known) {
        const wd_product_plan_lt *plan = p->plan[i];
        add_product(text, &plan->key, plan->key.rows);
        add(text, ": ");
        if (plan->refused)
            add(text, "a kernel of this program");
        else
            add_algorithm(text, p->lt, plan);
    }
    pthread_mutex_unlock(&p->lock);
    if (known) snprintf(out, bytes, "%s", text);
    return known;
}
