/* Divides a product into tiles: as few as the caches allow, and a number that is divided evenly
 * among threads. */
#include "dev/cpu/product_plan.h"

#include "core/checked.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The cost of the busiest thread in multiply-adds; packing an element costs about 5. */
static double cost_of(int64_t batch, int64_t m, int64_t n, int64_t tiles_m, int64_t tiles_n,
                      int threads)
{
    double rows = (double)ceil_div(m, tiles_m), columns = (double)ceil_div(n, tiles_n);
    double tiles = (double)ceil_div(batch * tiles_m * tiles_n, threads);
    return tiles * (rows * columns + 5 * (rows + columns));
}

static void choose_tiles(wd_product_plan *p, int64_t batch, int64_t m, int64_t n, int threads)
{
    int64_t least_m = ceil_div(m, WD_PRODUCT_TILE_ROWS);
    int64_t least_n = ceil_div(n, WD_PRODUCT_TILE_COLUMNS);
    double best = 0;
    for (int64_t tiles_m = least_m; tiles_m < least_m + threads; tiles_m++) {
        int64_t even_n = least_n; /* the next number that gives every thread as many */
        while (batch * tiles_m * even_n % threads && even_n < least_n + threads) even_n++;
        for (int i = 0; i < 2; i++) {
            int64_t tiles_n = i ? even_n : least_n;
            if (tiles_m > ceil_div(m, 4) || tiles_n > ceil_div(n, WD_PRODUCT_WIDE_MAX)) continue;
            double cost = cost_of(batch, m, n, tiles_m, tiles_n, threads);
            if (p->tiles && cost >= best) continue;
            best = cost;
            p->tiles_m = tiles_m;
            p->tiles_n = tiles_n;
            p->tiles = batch * tiles_m * tiles_n;
        }
    }
}

int64_t wd__product_depth(int64_t k)
{
    return k < WD_PRODUCT_DEPTH ? ceil_div(k, 16) * 16 : WD_PRODUCT_DEPTH;
}

wd_product_plan wd__product_plan_make(int64_t batch, int64_t m, int64_t n, int64_t k, int threads)
{
    wd_product_plan p = {0};
    if (batch * m * n == 0) return p;
    if (threads > 1 && batch * m * n * (k + 8) < 200000)
        threads = 1; /* not worth waking a thread */
    choose_tiles(&p, batch, m, n, threads);
    p.tile_m = ceil_div(m, p.tiles_m);
    p.tile_n = (int64_t)wd_round_up((size_t)ceil_div(n, p.tiles_n), WD_PRODUCT_WIDE_MAX);
    p.parts = p.tiles < threads ? p.tiles : threads;
    int64_t sums = k <= WD_PRODUCT_DEPTH ? 0 : p.tile_m;
    int64_t units = p.tile_n * (wd__product_depth(k) + sums);
    p.part_bytes = wd_round_up((size_t)units * sizeof(float), 64);
    return p;
}
