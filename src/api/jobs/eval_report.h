/* The results of `eval` as numbers, as a table and as JSON. */
#ifndef WD_API_JOBS_EVAL_REPORT_H
#define WD_API_JOBS_EVAL_REPORT_H

#include "io/json/json.h"
#include "model/sampling/schedule.h"

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
    const char *quantisation; /* the student is the teacher in this dtype; NULL: it is a student */
    /* Mean distance of a prompt's pictures from seed to seed: of the teacher's, the student's, and
     * the teacher's with reference_steps; 0 with one seed. */
    double diversity, student_diversity, reference_diversity;
} wd_eval_report;

/* Formats the report as a table, which ends with three lines: weights, seconds per picture,
 * agreement. The caller frees *out with wd_free. */
wd_status wd_eval_text(char **out, const wd_eval_report *report, wd_err *err);
/* Makes the report as JSON; the caller owns *out. */
wd_status wd_eval_json(json_t **out, const wd_eval_report *report, wd_err *err);

#endif
