/* See core/difference.h. */
#include "core/difference.h"

#include <math.h>

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

double wd_difference_mean_relative(const wd_difference *difference, int64_t count)
{
    double mean = 0;
    for (int64_t i = 0; i < count; i++)
        mean += wd_difference_relative(difference[i]) / (double)count;
    return mean;
}
