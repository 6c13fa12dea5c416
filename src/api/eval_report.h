/* The results of `eval` as numbers, as a table and as JSON. */
#ifndef WD_API_EVAL_REPORT_H
#define WD_API_EVAL_REPORT_H

#include "io/json.h"
#include "wan/schedule.h"

/* The figures of one of the two models. */
typedef struct wd_eval_side {
    int64_t weights, experts;
    double guidance_scale[2];
    double paint_s, decode_s; /* per picture */
} wd_eval_side;

/* A figure, and the standard error of its mean over pictures. */
typedef struct wd_eval_figure {
    double value, error;
} wd_eval_figure;

typedef struct wd_eval_report {
    int64_t pictures, seeds, steps, reference_steps, height, width; /* pictures per seed; pixels */
    wd_eval_side teacher, student;
    const float *sigma, *timestep; /* [steps] borrowed */
    double *velocity_error;        /* [steps] relative L2 at the teacher's own states; borrowed */
    wd_eval_figure velocity;       /* mean of velocity_error */
    wd_eval_figure latents;        /* relative L2 of the final latents */
    wd_eval_figure psnr_db;        /* of the pictures, values in [0, 1] */
    wd_eval_figure reference_db;   /* PSNR to the teacher's picture with reference_steps */
    wd_eval_figure correlation;    /* mean of Pearson's correlation of the pictures */
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
