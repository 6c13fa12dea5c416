/* The sampling loop: velocity, solver step, callback. The velocity stays on the device. */
#include "model/sampling/sampler.h"

#include <math.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "dev/ops.h"
#include "model/sampling/schedule.h"

/* ---- one step of a schedule's ODE: UniPC (predictor and corrector) or Euler ----
 *
 * Data flow of a UniPC step i: the velocity becomes a prediction of the clean latents, m = x -
 * sigma v; with it the corrector repeats the previous step; then the predictor steps to sigma[i +
 * 1]. Both are linear combinations of the latents before the step and of the latest predictions. So
 * a step computes coefficients on the host (fp32 in the reference's order of operations, from
 * scheduling_unipc_multistep.py of diffusers 0.42.1), and then launches `combine` two or three
 * times.
 *
 * Method: Zhao et al., "UniPC: A Unified Predictor-Corrector Framework for Fast Sampling of
 * Diffusion Models", 2023; B(h) is h (bh1) or e^h - 1 (bh2). */

enum { HISTORY = WD_SOLVER_ORDER_MAX + 1 };

/* The state of one run of a schedule over latents of `count` elements; its history is on the
 * device. */
typedef struct solver_state {
    const wd_schedule *schedule;
    wd_queue *queue;
    int64_t count, step;
    bool round_bf16;            /* the velocity's products are rounded to bf16 */
    int order;                  /* order of the latest predictor step */
    float *block;               /* device: the memory of the arrays below */
    float *prediction[HISTORY]; /* [count] clean latents: the latest first */
    float *before;              /* [count] latents before the latest predictor step */
} solver_state;

static wd_status solver_open(solver_state **out, const wd_schedule *schedule, int64_t count,
                             wd_dtype model_dtype, wd_queue *queue, wd_err *err)
{
    solver_state *s;
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "solver", err));
    const bool euler = schedule->config.kind == WD_SCHEDULER_EULER;
    *s = (solver_state){
        .schedule = schedule, .queue = queue, .count = count, .round_bf16 = model_dtype == WD_BF16};
    const int buffers = euler ? 1 : HISTORY + 1;
    const size_t bytes = (size_t)count * sizeof(float) * (size_t)buffers;
    wd_status status =
        wd_device_alloc((void **)&s->block, wd_queue_device(queue), bytes, "solver history", err);
    if (status != WD_OK) {
        wd_free(s);
        return status;
    }
    s->before = s->block;
    for (int i = 0; i < HISTORY && !euler; i++) s->prediction[i] = s->block + (i + 1) * count;
    *out = s;
    return WD_OK;
}

static void solver_close(solver_state *solver)
{
    if (!solver) return;
    wd_queue_wait(solver->queue);
    wd_device_free(wd_queue_device(solver->queue), solver->block);
    wd_free(solver);
}

static float to_bf16(float v)
{
    return wd_bf16_to_f32(wd_f32_to_bf16(v));
}

/* y = a x + factor v. With a bf16 model the reference computes factor v in bf16, since a 0-dim fp32
 * tensor does not promote the result; `scratch` [count] then holds this product. */
static void add_scaled(solver_state *s, float *y, const float *x, float factor, const float *v,
                       float *scratch, bool round_result)
{
    wd_combine_args sum = {.y = y,
                           .x = {x, v},
                           .factor = {1, factor},
                           .terms = 2,
                           .count = s->count,
                           .round_bf16 = round_result};
    if (s->round_bf16) {
        wd_combine_args product = {.y = scratch,
                                   .x = {v},
                                   .factor = {to_bf16(factor)},
                                   .terms = 1,
                                   .count = s->count,
                                   .round_bf16 = true};
        wd_op_combine(s->queue, &product);
        sum.x[1] = scratch;
        sum.factor[1] = 1;
    }
    wd_op_combine(s->queue, &sum);
}

/* Half the logarithm of the signal-to-noise ratio; infinite at sigma 0. */
static float lambda(float sigma)
{
    return logf(1 - sigma) - logf(sigma);
}

/* Solves the n x n system a x = b by elimination with row exchange; n <= 3. */
static void solve(float *x, double a[3][3], double *b, int n)
{
    for (int k = 0; k < n; k++) {
        int pivot = k;
        for (int i = k + 1; i < n; i++)
            if (fabs(a[i][k]) > fabs(a[pivot][k])) pivot = i;
        for (int j = 0; j < n; j++) {
            double t = a[k][j];
            a[k][j] = a[pivot][j];
            a[pivot][j] = t;
        }
        double t = b[k];
        b[k] = b[pivot];
        b[pivot] = t;
        for (int i = k + 1; i < n; i++) {
            double f = a[i][k] / a[k][k];
            for (int j = k; j < n; j++) a[i][j] -= f * a[k][j];
            b[i] -= f * b[k];
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        double t = b[i];
        for (int j = i + 1; j < n; j++) t -= a[i][j] * x[j];
        x[i] = (float)(t / a[i][i]);
    }
}

/* Coefficients of one update from sigma `s0` to `st` of order `p`:
 *   x(st) = on_x x(s0) + sum over k of on_m[k] m[k]
 * where m[0] is the prediction at s0, m[k] that k steps before, and, for the corrector, m[p] that
 * at `st`. */
typedef struct update {
    float on_x, on_m[WD_SOLVER_ORDER_MAX + 1];
} update;

/* Weights of the differences (m[k] - m[0]) / r[k], k = 1 ... p - 1, and, for the corrector, at
 * index p of the difference to the prediction at `st`. */
static void difference_weights(float *rho, const float *r, float hh, float b_h, int p,
                               bool corrector)
{
    if (p == 1) {
        rho[1] = 0.5f;
        return;
    }
    if (p == 2 && !corrector) {
        rho[1] = 0.5f;
        return;
    }
    const int n = corrector ? p : p - 1;
    double a[3][3], b[3];
    float phi = expm1f(hh) / hh - 1, factorial = 1, x[3];
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) a[i][j] = (double)powf(r[j + 1], (float)i);
        b[i] = (double)(phi * factorial / b_h);
        factorial *= (float)(i + 2);
        phi = phi / hh - 1 / factorial;
    }
    solve(x, a, b, n);
    for (int i = 0; i < n; i++) rho[i + 1] = x[i];
}

static update update_of(const wd_schedule *schedule, int64_t from, int p, bool corrector)
{
    const float *sigma = schedule->sigma;
    const float s0 = sigma[from], st = sigma[from + 1], alpha = 1 - st;
    const float h = lambda(st) - lambda(s0), hh = -h, phi = expm1f(hh);
    const float b_h = schedule->config.bh1 ? hh : phi;
    float r[WD_SOLVER_ORDER_MAX + 1], rho[WD_SOLVER_ORDER_MAX + 1];
    for (int k = 1; k < p; k++) r[k] = (lambda(sigma[from - k]) - lambda(s0)) / h;
    r[p] = 1;
    update u = {.on_x = st / s0, .on_m = {-(alpha * phi)}};
    if (p == 1 && !corrector) return u; /* also the step to sigma 0, where b_h may be infinite */
    difference_weights(rho, r, hh, b_h, p, corrector);
    const int last = corrector ? p : p - 1;
    for (int k = 1; k <= last; k++) {
        u.on_m[k] = -(alpha * b_h * rho[k] / r[k]);
        u.on_m[0] -= u.on_m[k];
    }
    return u;
}

/* to = on_x s->before + sum of on_m[k] m[k]. */
static void apply(solver_state *s, float *to, const update *u, const float *const *m, int terms)
{
    wd_combine_args args = {
        .y = to, .x = {s->before}, .factor = {u->on_x}, .terms = terms + 1, .count = s->count};
    for (int k = 0; k < terms; k++) {
        args.x[k + 1] = m[k];
        args.factor[k + 1] = u->on_m[k];
    }
    wd_op_combine(s->queue, &args);
}

static void step_unipc(solver_state *s, float *latents, const float *velocity)
{
    const wd_schedule *schedule = s->schedule;
    const wd_scheduler_config *config = &schedule->config;
    const int64_t i = s->step;
    float *newest = s->prediction[HISTORY - 1];
    add_scaled(s, newest, latents, -schedule->sigma[i], velocity, newest, false);

    const bool corrected = i > 0 && (i > 64 || !(config->disable_corrector >> (i - 1) & 1));
    if (corrected) {
        const update u = update_of(schedule, i - 1, s->order, true);
        const float *m[WD_SOLVER_ORDER_MAX + 1];
        for (int k = 0; k < s->order; k++) m[k] = s->prediction[k];
        m[s->order] = newest;
        apply(s, s->before, &u, m, s->order + 1);
    } else {
        wd_combine_args copy = {
            .y = s->before, .x = {latents}, .factor = {1}, .terms = 1, .count = s->count};
        wd_op_combine(s->queue, &copy);
    }
    for (int k = HISTORY - 1; k > 0; k--) s->prediction[k] = s->prediction[k - 1];
    s->prediction[0] = newest;

    /* Towards sigma 0 the reference divides by zero above order 1, which only configurations
     * without lower_order_final meet. */
    int64_t order = config->solver_order;
    const bool to_zero = schedule->sigma[i + 1] == 0;
    if (config->lower_order_final && order > schedule->steps - i) order = schedule->steps - i;
    if (order > i + 1) order = i + 1;
    s->order = to_zero ? 1 : (int)order;
    const update u = update_of(schedule, i, s->order, false);
    const float *m[WD_SOLVER_ORDER_MAX];
    for (int k = 0; k < s->order; k++) m[k] = s->prediction[k];
    apply(s, latents, &u, m, s->order);
}

/* Takes one step, in place: latents [count] F32 and velocity [count] F32 (with values of
 * model_dtype), both on the device. Calls are steps 0, 1, ... in order. */
static void solver_step(solver_state *solver, float *latents, const float *velocity)
{
    const wd_schedule *schedule = solver->schedule;
    WD_REQUIRE(solver->step < schedule->steps, "a schedule of %lld steps has ended",
               (long long)schedule->steps);
    if (schedule->config.kind == WD_SCHEDULER_UNIPC) {
        step_unipc(solver, latents, velocity);
    } else {
        const float dt = schedule->sigma[solver->step + 1] - schedule->sigma[solver->step];
        /* The reference casts the result to the velocity's dtype. */
        add_scaled(solver, latents, latents, dt, velocity, solver->before, solver->round_bf16);
    }
    solver->step++;
}

/* ---- the loop ---- */

static wd_status run(float *latents, float *v, solver_state *solver, const wd_schedule *schedule,
                     wd_velocity_fn *velocity, void *velocity_context, wd_sampler_look_fn *look,
                     void *look_context, wd_err *err)
{
    if (look) WD_TRY(look(look_context, 0, latents, err));
    for (int64_t i = 0; i < schedule->steps; i++) {
        WD_TRY(velocity(velocity_context, v, latents, schedule->timestep[i], err));
        solver_step(solver, latents, v);
        if (look) WD_TRY(look(look_context, i + 1, latents, err));
    }
    return WD_OK;
}

wd_status wd_sampler_run(float *latents, int64_t count, const wd_schedule *schedule,
                         wd_dtype model_dtype, wd_velocity_fn *velocity, void *velocity_context,
                         wd_sampler_look_fn *look, void *look_context, wd_queue *queue, wd_err *err)
{
    wd_device *device = wd_queue_device(queue);
    solver_state *solver = NULL;
    float *v = NULL;
    wd_status status;
    WD_TRY_OUT(wd_device_alloc((void **)&v, device, (size_t)count * sizeof *v, "velocity", err));
    WD_TRY_OUT(solver_open(&solver, schedule, count, model_dtype, queue, err));
    status = run(latents, v, solver, schedule, velocity, velocity_context, look, look_context, err);
out:
    solver_close(solver); /* waits for the queue */
    wd_device_free(device, v);
    return status;
}

void wd_sampler_noise(float *latents, uint64_t seed, int64_t first, int64_t count, int64_t each)
{
    for (int64_t i = 0; i < count; i++) {
        const wd_random key = {
            .seed = seed, .stream = WD_RANDOM_SAMPLE_NOISE, .index = (uint64_t)(first + i)};
        wd_random_normal(latents + i * each, each, key, 0);
    }
}
