/* Figures of many pictures: sums that grow picture by picture, and what follows from them. */
#ifndef WD_API_EVAL_MEASURE_H
#define WD_API_EVAL_MEASURE_H

#include "core/error.h"

/* Of one number per picture. */
typedef struct wd_tally {
    int64_t count;
    double sum, squares;
} wd_tally;

void wd_tally_add(wd_tally *tally, double value);
double wd_tally_mean(const wd_tally *tally); /* 0 where there is none */
/* Of the mean, from the sample's standard deviation; 0 of fewer than two numbers, NaN where one is
 * not finite. */
double wd_tally_error(const wd_tally *tally);

/* Squared length of the difference of two arrays, and of the second one. */
typedef struct wd_difference {
    double difference2, expected2;
} wd_difference;

wd_difference wd_difference_of(const float *value, const float *expected, int64_t count);
void wd_difference_add(wd_difference *sum, wd_difference one);
/* Relative L2 error: length of the difference over that of what was expected. */
double wd_difference_relative(wd_difference difference);

/* Decibels of a peak signal-to-noise ratio, values in [0, 1]; infinite where they are equal. */
double wd_psnr_db(double mean_square);

/* Correlation of two pictures of n values, each less its mean; 0 where one is constant. */
double wd_correlation(const float *a, const float *b, int64_t n);

/* How much pictures of one prompt differ from seed to seed. */
typedef struct wd_diversity {
    int64_t prompts, each, seeds; /* values of a picture; seeds so far */
    float *sum;                   /* [prompts, each] over seeds */
    double squares;               /* of all values */
} wd_diversity;

wd_status wd_diversity_open(wd_diversity *out, int64_t prompts, int64_t each, wd_err *err);
void wd_diversity_close(wd_diversity *diversity); /* zeroed is allowed */
/* The pictures [prompts, each] of one more seed. */
void wd_diversity_add(wd_diversity *diversity, const float *pictures);
/* Root mean square of the difference of two pictures of a prompt, over all values, pairs of seeds
 * and prompts; 0 of one seed. */
double wd_diversity_distance(const wd_diversity *diversity);

#endif
