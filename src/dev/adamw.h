/* The scalars of an AdamW step (wd_adamw_args of dev/ops.h), which are equal for all elements. They
 * are computed in double and without library functions that differ between host and GPU. C, C++ and
 * CUDA. */
#ifndef WD_DEV_ADAMW_H
#define WD_DEV_ADAMW_H

#include <math.h>

#include "dev/convert.h"
#include "dev/moments.h"
#include "dev/ops.h"

/* p (1 - lr decay) - (rate m + slow_rate slow) / (sqrt(v) correction + eps) */
typedef struct adamw_scalars {
    float grad_factor, keep, rate, correction;
    float m_new, v_new, ema_new;          /* 1 - b1, 1 - b2, 1 - ema_decay */
    float slow_rate, slow_keep, slow_new; /* lr alpha, b3, 1 - b3; only with `slow` */
    uint32_t seed;                        /* moment_seed of the step */
} adamw_scalars;

/* What is left of a move of AdEMAMix: nothing, unless the latest gradient wants the same sign. */
WD_ANYWHERE float cautious(float move, float gradient)
{
    const bool agree = (move > 0 && gradient > 0) || (move < 0 && gradient < 0);
    return agree ? WD_CAUTIOUS_GAIN * move : 0;
}

/* base^exponent by squaring; exponent >= 0. */
WD_ANYWHERE double integer_power(double base, int64_t exponent)
{
    double power = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1) power *= base;
    return power;
}

/* 1 - the EMA's decay in a step. */
WD_ANYWHERE float ema_share(float ema_decay, int64_t step)
{
    const double t = (double)step;
    return (float)(1 - (double)(float)fmin((double)ema_decay, (1 + t) / (10 + t)));
}

/* Reads factor, lr and step, so it must run on the device that has them. */
WD_ANYWHERE adamw_scalars adamw_scalars_of(const wd_adamw_args *a)
{
    adamw_scalars s;
    s.grad_factor = a->factor[0];
    s.keep = (float)(1 - (double)a->lr[0] * a->decay);
    s.rate = (float)(a->lr[0] / (1 - integer_power(a->beta1, a->step[0])));
    s.correction = (float)(1 / sqrt(1 - integer_power(a->beta2, a->step[0])));
    s.m_new = (float)(1 - (double)a->beta1);
    s.v_new = (float)(1 - (double)a->beta2);
    s.ema_new = ema_share(a->ema_decay, a->step[0]);
    s.slow_rate = a->slow ? (float)((double)a->lr[0] * a->alpha[0]) : 0;
    s.slow_keep = a->slow ? a->beta3[0] : 0;
    s.slow_new = (float)(1 - (double)s.slow_keep);
    s.seed = moment_seed(a->step[0]);
    return s;
}

#endif
