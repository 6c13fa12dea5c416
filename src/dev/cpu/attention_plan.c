/* Sizes of the large algorithm of attention. They are upper bounds for any instruction set: with
 * the widest panels, and with floats as units. */
#include "dev/cpu/attention_plan.h"

#include "dev/cpu/product_plan.h"

enum { WIDEST = WD_PRODUCT_WIDE_MAX, LINE = WD_PRODUCT_LINE, KEYS = WD_ATTENTION_KEYS };

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Packed rows: `rows` of them, `width` elements each. */
static int64_t rows_floats(int64_t rows, int64_t width)
{
    return round_up(width, WD_PRODUCT_DEPTH) / WD_PRODUCT_DEPTH * rows * LINE;
}

wd_attention_plan wd__attention_plan_forward(int64_t pairs, int64_t q_tokens, int64_t head_dim)
{
    wd_attention_plan p = {0};
    int64_t threads = wd_parallel_threads(), width = round_up(head_dim, WIDEST);
    if (pairs * q_tokens == 0) return p;
    /* as many queries as keep their operands in the second-level cache, and all threads busy */
    p.queries = 65536 / width / WIDEST * WIDEST;
    if (p.queries > 256) p.queries = 256;
    if (p.queries > round_up(q_tokens, WIDEST)) p.queries = round_up(q_tokens, WIDEST);
    if (p.queries < WIDEST) p.queries = WIDEST;
    while (p.queries > WIDEST && pairs * round_up(q_tokens, p.queries) / p.queries < 3 * threads)
        p.queries -= WIDEST;
    p.tasks = pairs * (round_up(q_tokens, p.queries) / p.queries);
    p.parts = p.tasks < threads ? p.tasks : threads;
    p.part_floats = (size_t)(2 * p.queries * width + rows_floats(KEYS, head_dim) + width * LINE +
                             KEYS * WIDEST + 2 * p.queries);
    return p;
}

wd_attention_plan wd__attention_plan_backward(int64_t pairs, int64_t q_tokens, int64_t head_dim)
{
    wd_attention_plan p = {0};
    int64_t threads = wd_parallel_threads(), width = round_up(head_dim, WIDEST);
    if (pairs * q_tokens == 0) return p;
    p.queries = WD_ATTENTION_QUERIES_BACKWARD;
    p.tasks = pairs;
    p.parts = p.tasks < threads ? p.tasks : threads;
    p.part_floats = (size_t)(4 * p.queries * width + 2 * rows_floats(KEYS, head_dim) +
                             width * LINE + 3 * KEYS * WIDEST + 2 * KEYS * LINE + 2 * KEYS * width +
                             round_up(q_tokens, p.queries) * (width + 2));
    return p;
}
