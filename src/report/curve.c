/* Curves: see report/curve.h. */
#include "report/curve.h"

#include <math.h>
#include <stdbool.h>

static void join(wd_curve_bin *to, const wd_curve_bin *next)
{
    to->last = next->last;
    to->low = fmin(to->low, next->low);
    to->high = fmax(to->high, next->high);
    to->sum += next->sum;
    to->steps += next->steps;
    to->count += next->count;
}

static void halve(wd_curve *c)
{
    for (int i = 0; i < c->count / 2; i++) {
        c->bin[i] = c->bin[2 * i];
        join(&c->bin[i], &c->bin[2 * i + 1]);
    }
    c->count /= 2;
    c->per_bin *= 2;
}

void wd__curve_add(wd_curve *curve, double step, double value)
{
    wd_curve *c = curve;
    const wd_curve_bin one = {step, step, value, value, value, step, 1};
    if (!c->per_bin) c->per_bin = 1;
    c->newest = value;
    const bool begins = !c->count || c->bin[c->count - 1].count >= c->per_bin;
    if (!begins) {
        join(&c->bin[c->count - 1], &one);
        return;
    }
    if (c->count == WD_CURVE_BINS) halve(c);
    c->bin[c->count++] = one;
}

/* A sum of huge values may overflow, their mean is between them all the same. */
double wd__curve_bin_mean(const wd_curve_bin *bin)
{
    const double mean = bin->sum / (double)bin->count;
    if (isfinite(mean)) return fmin(fmax(mean, bin->low), bin->high);
    return bin->low / 2 + bin->high / 2;
}

double wd__curve_bin_step(const wd_curve_bin *bin)
{
    return bin->steps / (double)bin->count;
}

void wd__curve_range(double *low, double *high, const wd_curve *curve)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (int i = 0; i < curve->count; i++) {
        *low = fmin(*low, curve->bin[i].low);
        *high = fmax(*high, curve->bin[i].high);
    }
}
