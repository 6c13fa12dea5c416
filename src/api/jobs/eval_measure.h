/* Statistics over pictures: sums to which pictures are added, and the figures that follow from
 * them. */
#ifndef WD_API_JOBS_EVAL_MEASURE_H
#define WD_API_JOBS_EVAL_MEASURE_H

#include "core/error.h"

/* Sums over one number per picture. */
typedef struct wd_tally {
    int64_t count;
    double sum, squares;
} wd_tally;

void wd_tally_add(wd_tally *tally, double value);
double wd_tally_mean(const wd_tally *tally); /* 0 if count is 0 */
/* The standard error of the mean, from the sample's standard deviation; 0 for fewer than two
 * numbers, NaN if one is not finite. */
double wd_tally_error(const wd_tally *tally);

/* The squared L2 norm of the difference of two arrays, and of the second array. */
typedef struct wd_difference {
    double difference2, expected2;
} wd_difference;

wd_difference wd_difference_of(const float *value, const float *expected, int64_t count);
void wd_difference_add(wd_difference *sum, wd_difference one);
/* The relative L2 error: the norm of the difference over that of the expected array. */
double wd_difference_relative(wd_difference difference);

/* The peak signal-to-noise ratio in decibels for values in [0, 1]; infinite if mean_square is 0. */
double wd_psnr_db(double mean_square);

/* Pearson's correlation of two pictures of n values; 0 if one is constant. */
double wd_correlation(const float *a, const float *b, int64_t n);

/* A measure of how much pictures of one prompt differ between seeds. */
typedef struct wd_diversity {
    int64_t prompts, each, seeds; /* values of a picture; seeds so far */
    float *sum;                   /* [prompts, each] over seeds */
    double *squares;              /* [prompts]: sums of squares, over values and seeds */
} wd_diversity;

wd_status wd_diversity_open(wd_diversity *out, int64_t prompts, int64_t each, wd_err *err);
void wd_diversity_close(wd_diversity *diversity); /* a zeroed struct is allowed */
/* Adds the pictures [prompts, each] of another seed. */
void wd_diversity_add(wd_diversity *diversity, const float *pictures);
/* The mean over prompts of how far two pictures of a prompt are apart, which is the root mean
 * square difference over all values and pairs of seeds. So a prompt does not count more because its
 * pictures differ much. 0 with one seed. */
double wd_diversity_distance(const wd_diversity *diversity);

#endif
