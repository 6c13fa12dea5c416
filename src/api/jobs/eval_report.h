/* The results of `eval`: statistics over pictures, and the report that is made of them, as a table
 * and as JSON. */
#ifndef WD_API_JOBS_EVAL_REPORT_H
#define WD_API_JOBS_EVAL_REPORT_H

#include "core/difference.h"
#include "core/error.h"
#include "io/json/json.h"
#include "model/sampling/schedule.h"

/* ---- statistics over pictures: sums to which they are added, and figures ---- */

/* Sums over one number per picture. */
typedef struct wd_tally {
    int64_t count;
    double sum, squares;
} wd_tally;

void wd__tally_add(wd_tally *tally, double value);
double wd__tally_mean(const wd_tally *tally); /* 0 if count is 0 */
/* The standard error of the mean, from the sample's standard deviation; 0 for fewer than two
 * numbers, NaN if one is not finite. */
double wd__tally_error(const wd_tally *tally);

/* The peak signal-to-noise ratio in decibels for values in [0, 1]; infinite if mean_square is 0. */
double wd__psnr_db(double mean_square);

/* Pearson's correlation of two pictures of n values; 0 if one is constant. */
double wd__correlation(const float *a, const float *b, int64_t n);

/* The energy of a picture's details, by their size: entry k is of those of 2^(k+1) pixels, the sum
 * of squares of what blocks of 2^k pixels differ by from the mean of the four that touch (the
 * details of Haar's wavelet). Blurring takes it from the small ones first. */
enum { WD_DETAIL_SIZES = 3 };
typedef struct wd_details {
    double energy[WD_DETAIL_SIZES];
} wd_details;

/* Adds those of pictures [count, height, width], or of channels, whose sides are multiples of 8.
 * WD_OUT_OF_MEMORY. */
wd_status wd__details_add(wd_details *sum, const float *pictures, int64_t count, int64_t height,
                          int64_t width, wd_err *err);

/* A measure of how much pictures of one prompt differ between seeds. */
typedef struct wd_diversity {
    int64_t prompts, each, seeds; /* values of a picture; seeds so far */
    float *sum;                   /* [prompts, each] over seeds */
    double *squares;              /* [prompts]: sums of squares, over values and seeds */
} wd_diversity;

wd_status wd__diversity_open(wd_diversity *out, int64_t prompts, int64_t each, wd_err *err);
void wd__diversity_close(wd_diversity *diversity); /* a zeroed struct is allowed */
/* Adds the pictures [prompts, each] of another seed. */
void wd__diversity_add(wd_diversity *diversity, const float *pictures);
/* The mean over prompts of how far two pictures of a prompt are apart, which is the root mean
 * square difference over all values and pairs of seeds. So a prompt does not count more because its
 * pictures differ much. 0 with one seed. */
double wd__diversity_distance(const wd_diversity *diversity);

/* ---- the report ---- */

/* The figures of one of the two models. */
typedef struct wd_eval_side {
    int64_t weights, experts;
    double guidance_scale[2];
    wd_dtype dtype;           /* that it computes in */
    double paint_s, decode_s; /* per picture; the teacher's in its own number of steps */
} wd_eval_side;

/* A figure, and the standard error of its mean over pictures. */
typedef struct wd_eval_figure {
    double value, error;
} wd_eval_figure;

typedef struct wd_eval_report {
    int64_t pictures, seeds, height, width; /* pictures per seed; pixels */
    int64_t steps, reference_steps;         /* the student's; the teacher's own */
    wd_eval_side teacher, student;
    const float *sigma, *timestep; /* [steps] borrowed */
    double *velocity_error;        /* [steps] relative L2 at the teacher's own states; borrowed */
    /* Compared with the teacher in `steps` steps: the mean of velocity_error, relative L2 of the
     * final latents, PSNR of the pictures with values in [0, 1], and the mean of Pearson's
     * correlation of the pictures. */
    wd_eval_figure velocity, latents, psnr_db, correlation;
    /* PSNR and correlation of the student's pictures, as above, with those that the teacher draws
     * in reference_steps steps. */
    wd_eval_figure reference_db, reference_correlation;
    int64_t trained_steps;    /* in which the student was trained; 0: not known */
    const char *quantisation; /* the student is the teacher in this dtype; NULL: it is a student */
    /* Mean distance of a prompt's pictures from seed to seed: of the teacher's, the student's, and
     * the teacher's with reference_steps; 0 with one seed. */
    double diversity, student_diversity, reference_diversity;
    /* Details of the student's pictures as a share of those of the teacher's, in reference_steps
     * and in `steps` steps: the square root of their energies' ratio. 1: as sharp. */
    double sharpness[WD_DETAIL_SIZES], sharpness_in_steps[WD_DETAIL_SIZES];
} wd_eval_report;

/* Formats the report as a table, which ends with three lines: weights, seconds per picture,
 * agreement. The caller frees *out with wd_free. */
wd_status wd__eval_text(char **out, const wd_eval_report *report, wd_err *err);
/* Makes the report as JSON; the caller owns *out. */
wd_status wd__eval_json(json_t **out, const wd_eval_report *report, wd_err *err);

#endif
