/* Statistics over pictures: see api/jobs/eval_measure.h. */
#include "api/jobs/eval_measure.h"

#include <math.h>

#include "core/memory.h"

void wd_tally_add(wd_tally *tally, double value)
{
    tally->count++;
    tally->sum += value;
    tally->squares += value * value;
}

double wd_tally_mean(const wd_tally *tally)
{
    return tally->count ? tally->sum / (double)tally->count : 0;
}

double wd_tally_error(const wd_tally *tally)
{
    const double n = (double)tally->count;
    if (tally->count < 2) return 0;
    if (!isfinite(tally->squares)) return NAN;
    const double variance = (tally->squares - tally->sum * tally->sum / n) / (n - 1);
    return sqrt(fmax(variance, 0) / n);
}

wd_difference wd_difference_of(const float *value, const float *expected, int64_t count)
{
    wd_difference sum = {0};
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)value[i] - (double)expected[i];
        sum.difference2 += d * d;
        sum.expected2 += (double)expected[i] * (double)expected[i];
    }
    return sum;
}

void wd_difference_add(wd_difference *sum, wd_difference one)
{
    sum->difference2 += one.difference2;
    sum->expected2 += one.expected2;
}

double wd_difference_relative(wd_difference difference)
{
    return sqrt(difference.difference2 / difference.expected2);
}

double wd_psnr_db(double mean_square)
{
    return -10 * log10(mean_square);
}

double wd_correlation(const float *a, const float *b, int64_t n)
{
    double sa = 0, sb = 0, aa = 0, bb = 0, ab = 0;
    for (int64_t i = 0; i < n; i++) sa += (double)a[i], sb += (double)b[i];
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)a[i] - sa / (double)n, y = (double)b[i] - sb / (double)n;
        aa += x * x, bb += y * y, ab += x * y;
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

wd_status wd_diversity_open(wd_diversity *out, int64_t prompts, int64_t each, wd_err *err)
{
    *out = (wd_diversity){.prompts = prompts, .each = each};
    WD_TRY(wd_alloc((void **)&out->sum, (size_t)(prompts * each), sizeof(float), "sums of pictures",
                    err));
    return wd_alloc((void **)&out->squares, (size_t)prompts, sizeof(double), "sums of pictures",
                    err);
}

void wd_diversity_close(wd_diversity *diversity)
{
    wd_free(diversity->sum);
    wd_free(diversity->squares);
    *diversity = (wd_diversity){0};
}

void wd_diversity_add(wd_diversity *diversity, const float *pictures)
{
    for (int64_t i = 0; i < diversity->prompts * diversity->each; i++) {
        diversity->sum[i] += pictures[i];
        diversity->squares[i / diversity->each] += (double)pictures[i] * (double)pictures[i];
    }
    diversity->seeds++;
}

/* Over pairs i < j of n vectors, sum |x_i - x_j|^2 = n sum |x_i|^2 - |sum x_i|^2. */
static double distance_of_prompt(const wd_diversity *d, int64_t prompt)
{
    const double n = (double)d->seeds, pairs = n * (n - 1) / 2;
    const float *sum = d->sum + prompt * d->each;
    double sums = 0;
    for (int64_t i = 0; i < d->each; i++) sums += (double)sum[i] * (double)sum[i];
    return sqrt(fmax(n * d->squares[prompt] - sums, 0) / (pairs * (double)d->each));
}

double wd_diversity_distance(const wd_diversity *diversity)
{
    double total = 0;
    if (diversity->seeds < 2) return 0;
    for (int64_t i = 0; i < diversity->prompts; i++) total += distance_of_prompt(diversity, i);
    return total / (double)diversity->prompts;
}
