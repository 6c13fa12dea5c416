/* How far values are from expected ones: sums of squares, to which more are added, and the relative
 * error that follows from them. `eval` and validation during training compute their figures so. */
#ifndef WD_CORE_DIFFERENCE_H
#define WD_CORE_DIFFERENCE_H

#include <stdint.h>

/* The squared L2 norm of the difference of two arrays, and of the array that was expected. */
typedef struct wd_difference {
    double difference2, expected2;
} wd_difference;

wd_difference wd_difference_of(const float *value, const float *expected, int64_t count);
void wd_difference_add(wd_difference *sum, wd_difference one);

/* The relative L2 error: the norm of the difference over that of the expected array. */
double wd_difference_relative(wd_difference difference);

/* The mean of the relative errors of `count` differences, such as one for each noise level. */
double wd_difference_mean_relative(const wd_difference *difference, int64_t count);

#endif
