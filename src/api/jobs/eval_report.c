/* The results of `eval`: see api/jobs/eval_report.h. */
#include "api/jobs/eval_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/* ---- statistics over pictures ---- */

void wd__tally_add(wd_tally *tally, double value)
{
    tally->count++;
    tally->sum += value;
    tally->squares += value * value;
}

double wd__tally_mean(const wd_tally *tally)
{
    return tally->count ? tally->sum / (double)tally->count : 0;
}

double wd__tally_error(const wd_tally *tally)
{
    const double n = (double)tally->count;
    if (tally->count < 2) return 0;
    if (!isfinite(tally->squares)) return NAN;
    const double variance = (tally->squares - tally->sum * tally->sum / n) / (n - 1);
    return sqrt(fmax(variance, 0) / n);
}

double wd__psnr_db(double mean_square)
{
    return -10 * log10(mean_square);
}

double wd__correlation(const float *a, const float *b, int64_t n)
{
    double sa = 0, sb = 0, aa = 0, bb = 0, ab = 0;
    for (int64_t i = 0; i < n; i++) sa += (double)a[i], sb += (double)b[i];
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)a[i] - sa / (double)n, y = (double)b[i] - sb / (double)n;
        aa += x * x, bb += y * y, ab += x * y;
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

/* Replaces the picture, of even sides, by the means of its blocks of 2x2 values, in its first
 * quarter, and returns the energy of what is lost. */
static double halve(float *picture, int64_t height, int64_t width)
{
    double energy = 0;
    for (int64_t y = 0; y < height / 2; y++)
        for (int64_t x = 0; x < width / 2; x++) {
            const float *above = picture + 2 * y * width + 2 * x, *below = above + width;
            const double mean =
                ((double)above[0] + (double)above[1] + (double)below[0] + (double)below[1]) / 4;
            for (int i = 0; i < 2; i++) {
                const double a = (double)above[i] - mean, b = (double)below[i] - mean;
                energy += a * a + b * b;
            }
            picture[y * (width / 2) + x] = (float)mean;
        }
    return energy;
}

wd_status wd__details_add(wd_details *sum, const float *pictures, int64_t count, int64_t height,
                          int64_t width, wd_err *err)
{
    float *one;
    WD_TRY(wd_alloc((void **)&one, (size_t)(height * width), sizeof *one, "a picture", err));
    for (int64_t i = 0; i < count; i++) {
        memcpy(one, pictures + i * height * width, (size_t)(height * width) * sizeof *one);
        for (int k = 0; k < WD_DETAIL_SIZES; k++) /* a block of k counts for 4^k pixels */
            sum->energy[k] += (double)(1 << 2 * k) * halve(one, height >> k, width >> k);
    }
    wd_free(one);
    return WD_OK;
}

wd_status wd__diversity_open(wd_diversity *out, int64_t prompts, int64_t each, wd_err *err)
{
    *out = (wd_diversity){.prompts = prompts, .each = each};
    WD_TRY(wd_alloc((void **)&out->sum, (size_t)(prompts * each), sizeof(float), "sums of pictures",
                    err));
    return wd_alloc((void **)&out->squares, (size_t)prompts, sizeof(double), "sums of pictures",
                    err);
}

void wd__diversity_close(wd_diversity *diversity)
{
    wd_free(diversity->sum);
    wd_free(diversity->squares);
    *diversity = (wd_diversity){0};
}

void wd__diversity_add(wd_diversity *diversity, const float *pictures)
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

double wd__diversity_distance(const wd_diversity *diversity)
{
    double total = 0;
    if (diversity->seeds < 2) return 0;
    for (int64_t i = 0; i < diversity->prompts; i++) total += distance_of_prompt(diversity, i);
    return total / (double)diversity->prompts;
}

/* ---- the report ---- */

enum { LEVELS_SHOWN = 20 };

/* "2.77 M" */
static const char *weights_text(char *out, size_t bytes, int64_t weights)
{
    static const char *const unit[] = {"", " k", " M", " B"};
    double v = (double)weights;
    int u = 0;
    while (v >= 1000 && u < 3) v /= 1000, u++;
    snprintf(out, bytes, "%.3g%s", v, unit[u]);
    return out;
}

static const char *side_text(char *out, size_t bytes, const wd_eval_side *side)
{
    char weights[32];
    weights_text(weights, sizeof weights, side->weights);
    if (side->experts > 1)
        snprintf(out, bytes, "%" PRId64 " x %s", side->experts, weights);
    else
        snprintf(out, bytes, "%s", weights);
    return out;
}

static void write_levels(FILE *out, const wd_eval_report *r)
{
    const int64_t shown = r->steps < LEVELS_SHOWN ? r->steps : LEVELS_SHOWN;
    fprintf(out, "\nvelocity error at the teacher's states, by noise level\n"
                 "  sigma  timestep  error\n");
    for (int64_t k = 0; k < shown; k++) {
        const int64_t i = shown == 1 ? 0 : k * (r->steps - 1) / (shown - 1);
        fprintf(out, "  %.3f  %8.0f  %5.3f\n", (double)r->sigma[i], (double)r->timestep[i],
                r->velocity_error[i]);
    }
    fprintf(out, "  mean             %5.3f +- %.3f\n", r->velocity.value, r->velocity.error);
}

static bool has_own_steps(const wd_eval_report *r)
{
    return r->reference_steps != r->steps;
}

static void write_shares(FILE *out, const double *share)
{
    for (int k = 0; k < WD_DETAIL_SIZES; k++)
        fprintf(out, "%s%.0f %%", k ? ", " : "", 100 * share[k]);
}

static void write_sharpness(FILE *out, const wd_eval_report *r)
{
    fprintf(out, "sharpness, in details of 2, 4 and 8 pixels: ");
    write_shares(out, r->sharpness);
    fprintf(out, " of the teacher's in %" PRId64 " steps", r->reference_steps);
    if (has_own_steps(r)) {
        fprintf(out, "; ");
        write_shares(out, r->sharpness_in_steps);
        fprintf(out, " in %" PRId64, r->steps);
    }
    fprintf(out, "\n");
}

/* Standard errors are of the means over all pictures. */
static void write_pictures(FILE *out, const wd_eval_report *r)
{
    if (has_own_steps(r)) {
        fprintf(out,
                "\npictures, to the teacher's in its %" PRId64 " steps: PSNR %.1f +- %.1f dB, "
                "correlation %.3f +- %.3f\n",
                r->reference_steps, r->reference_db.value, r->reference_db.error,
                r->reference_correlation.value, r->reference_correlation.error);
        fprintf(out, "to the teacher's in %" PRId64 " step%s, as the student's:\n", r->steps,
                r->steps == 1 ? "" : "s");
    } else {
        fprintf(out, "\n");
    }
    fprintf(out, "final latents: relative difference %.3f +- %.3f\n", r->latents.value,
            r->latents.error);
    fprintf(out, "pictures: PSNR %.1f +- %.1f dB, correlation %.3f +- %.3f\n", r->psnr_db.value,
            r->psnr_db.error, r->correlation.value, r->correlation.error);
    write_sharpness(out, r);
    if (r->seeds < 2) return;
    fprintf(out,
            "diversity, from seed to seed: student %.3f, teacher in %" PRId64
            " steps %.3f (%.0f %%)",
            r->student_diversity, r->reference_steps, r->reference_diversity,
            100 * r->student_diversity / r->reference_diversity);
    if (has_own_steps(r))
        fprintf(out, ", teacher in %" PRId64 " %.3f (%.0f %%)", r->steps, r->diversity,
                100 * r->student_diversity / r->diversity);
    fprintf(out, "\n");
}

/* Velocities are compared at the states of the student's own steps. A student of few steps has
 * learnt chords of several steps, not these velocities, so that its pictures alone say how good it
 * is. */
static void write_agreement(FILE *out, const wd_eval_report *r)
{
    fprintf(out, "agreement with the teacher: ");
    if (has_own_steps(r))
        fprintf(out, "pictures correlate %.3f with its own in %" PRId64 " steps\n",
                r->reference_correlation.value, r->reference_steps);
    else
        fprintf(out, "%.1f %% of the velocity, pictures correlate %.3f\n",
                100 * (1 - r->velocity.value), r->correlation.value);
}

static double seconds(const wd_eval_side *side)
{
    return side->paint_s + side->decode_s;
}

wd_status wd__eval_text(char **out, const wd_eval_report *report, wd_err *err)
{
    const wd_eval_report *r = report;
    char teacher[64], student[64], *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    if (!file) return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for a report");
    fprintf(file,
            "%" PRId64 " pictures of %" PRId64 "x%" PRId64 "; teacher: %" PRId64
            " steps, guidance %g, %s; student: %" PRId64
            " step%s, guidance %g, %s; the same noise, "
            "%" PRId64 " seed%s\n",
            r->pictures, r->width, r->height, r->reference_steps, r->teacher.guidance_scale[0],
            wd_dtype_option_name(r->teacher.dtype), r->steps, r->steps == 1 ? "" : "s",
            r->student.guidance_scale[0], wd_dtype_option_name(r->student.dtype), r->seeds,
            r->seeds == 1 ? "" : "s");
    if (r->quantisation)
        fprintf(file, "the student is the teacher, its blocks quantised to %s\n", r->quantisation);
    write_levels(file, r);
    write_pictures(file, r);
    fprintf(file, "\nweights: teacher %s, student %s\n",
            side_text(teacher, sizeof teacher, &r->teacher),
            side_text(student, sizeof student, &r->student));
    fprintf(file,
            "seconds per picture: teacher %.3g, student %.3g (%.1f times as fast; decoding "
            "%.2g)\n",
            seconds(&r->teacher), seconds(&r->student), seconds(&r->teacher) / seconds(&r->student),
            r->student.decode_s);
    write_agreement(file, r);
    const bool failed = ferror(file) != 0;
    const wd_status status = fclose(file) || failed
                                 ? wd_fail(err, WD_OUT_OF_MEMORY, "no memory for a report")
                                 : wd_copy_text(out, text, err);
    free(text);
    return status;
}

static json_t *side_json(const wd_eval_side *s, double diversity)
{
    return json_pack("{s:I, s:I, s:s, s:[f,f], s:f, s:f, s:f}", "weights", (json_int_t)s->weights,
                     "experts", (json_int_t)s->experts, "dtype", wd_dtype_option_name(s->dtype),
                     "guidance_scale", s->guidance_scale[0], s->guidance_scale[1],
                     "seconds_per_picture", seconds(s), "decode_seconds", s->decode_s, "diversity",
                     diversity);
}

/* A number that JSON can hold: identical pictures have an infinite PSNR. */
static json_t *real(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* Of the student; its key "steps" at the top of the report is of sampling. */
static bool add_trained_steps(json_t *to, int64_t steps)
{
    return !steps || !json_object_set_new(json_object_get(to, "student"), "trained_steps",
                                          json_integer((json_int_t)steps));
}

static json_t *shares_json(const double *share)
{
    json_t *list = json_array();
    for (int k = 0; k < WD_DETAIL_SIZES; k++) json_array_append_new(list, real(share[k]));
    return list;
}

static bool add_figure(json_t *to, const char *name, const char *error_name, wd_eval_figure f)
{
    return !json_object_set_new(to, name, real(f.value)) &&
           !json_object_set_new(to, error_name, real(f.error));
}

wd_status wd__eval_json(json_t **out, const wd_eval_report *report, wd_err *err)
{
    const wd_eval_report *r = report;
    json_t *levels = json_array();
    for (int64_t i = 0; i < r->steps; i++)
        json_array_append_new(levels, json_pack("{s:f, s:f, s:o}", "sigma", (double)r->sigma[i],
                                                "timestep", (double)r->timestep[i],
                                                "velocity_error", real(r->velocity_error[i])));
    *out = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "pictures",
                     (json_int_t)r->pictures, "seeds", (json_int_t)r->seeds, "steps",
                     (json_int_t)r->steps, "reference_steps", (json_int_t)r->reference_steps,
                     "height", (json_int_t)r->height, "width", (json_int_t)r->width, "teacher",
                     side_json(&r->teacher, r->diversity), "student",
                     side_json(&r->student, r->student_diversity), "levels", levels);
    if (!*out) return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for a report");
    const bool written =
        (!r->quantisation ||
         !json_object_set_new(*out, "quantisation", json_string(r->quantisation))) &&
        add_trained_steps(*out, r->trained_steps) &&
        add_figure(*out, "velocity_error", "velocity_error_se", r->velocity) &&
        add_figure(*out, "latents_error", "latents_error_se", r->latents) &&
        add_figure(*out, "psnr_db", "psnr_db_se", r->psnr_db) &&
        add_figure(*out, "reference_psnr_db", "reference_psnr_db_se", r->reference_db) &&
        !json_object_set_new(*out, "reference_diversity", json_real(r->reference_diversity)) &&
        !json_object_set_new(*out, "sharpness", shares_json(r->sharpness_in_steps)) &&
        !json_object_set_new(*out, "reference_sharpness", shares_json(r->sharpness)) &&
        add_figure(*out, "correlation", "correlation_se", r->correlation) &&
        add_figure(*out, "reference_correlation", "reference_correlation_se",
                   r->reference_correlation);
    if (written) return WD_OK;
    json_decref(*out);
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for a report");
}
