/* AdamW or AdEMAMix on the flat parameters, the learning rate, and the EMA.
 *
 * Data flow: gradients g (all micro-batches, all ranks) -> norm -> clip factor -> AdamW on p, m, v
 * and the bf16 copy -> EMA. AdEMAMix also has a moment of gradients that are thousands of steps old
 * (wd_adamw_args in dev/ops.h). Norm and factor stay on the device: a launch reads them, the host
 * reads them a step later (train/network/readback.h). A step whose norm is not finite is dropped:
 * it changes no weight, and is not among those that bias correction and EMA count, on the device,
 * too.
 *
 * Where ranks share the parameters each rank steps its own pieces, with the norm and factor of all
 * gradients, and sends the new weights to all (train/network/shard.h): all ranks call start_ema and
 * step.
 */
#ifndef WD_TRAIN_NETWORK_OPTIMIZER_H
#define WD_TRAIN_NETWORK_OPTIMIZER_H

#include "train/network/params.h"

/* What weight decay applies to: every parameter, as torch.optim.AdamW does with the list it is
 * given, or only weights of two and more dimensions, as most trainers choose. */
typedef enum wd_decay_scope { WD_DECAY_MATRICES, WD_DECAY_ALL } wd_decay_scope;

typedef struct wd_optimizer_options {
    double beta1, beta2, eps;
    double alpha; /* AdEMAMix: the weight of the slow moments, which must be among the parameters'
                   * buffers, at the end of the run, or of each phase; 0: AdamW */
    double beta3; /* AdEMAMix: their decay at the same time */
    bool moments_in_8_bits; /* as the parameters have them; not AdEMAMix */
    double decay;           /* decoupled weight decay; 0: none */
    wd_decay_scope decay_scope;
    double grad_norm_max; /* clipping; 0: none */
    double ema_decay;     /* its limit: step t uses min(ema_decay, (1 + t) / (10 + t)), so that
                           * short runs are not averaged with their start */
} wd_optimizer_options;

/* AdamW: 0.9, 0.99, 1e-8, no decay, norm 1, EMA 0.999. */
wd_optimizer_options wd_optimizer_defaults(void);

typedef struct wd_optimizer wd_optimizer;

/* Works on `params` (borrowed), which have moments. Where these or the EMA are in host memory, they
 * are stepped there: train/network/optimizer_host.h. */
wd_status wd_optimizer_open(wd_optimizer **out, const wd_optimizer_options *options,
                            wd_params *params, wd_err *err);
void wd_optimizer_close(wd_optimizer *optimizer); /* NULL is allowed */

/* The EMA starts as a copy of the weights: once, after they were initialised. Gradients may be
 * overwritten. */
void wd_optimizer_start_ema(wd_optimizer *optimizer, wd_queue *queue);

/* Returns the number of steps taken, including those before a resume. After loading a checkpoint,
 * call wd_optimizer_set_steps. Both wait for `queue`. */
int64_t wd_optimizer_steps(const wd_optimizer *optimizer, wd_queue *queue);
void wd_optimizer_set_steps(wd_optimizer *optimizer, int64_t steps, wd_queue *queue);

enum { WD_OPTIMIZER_RATES = 3 }; /* float values that a step copies to the device */

/* One step with learning rate `lr`; gradients stay as they are. `progress` in [0, 1] is the share
 * of the run's steps, or of its time, that is used up, or of its phase's: only AdEMAMix needs it.
 */
void wd_optimizer_step(wd_optimizer *optimizer, double lr, double progress, wd_queue *queue);

/* Bytes that a step copies to the device and back where moments, or the EMA alone, are in host
 * memory. */
typedef struct wd_optimizer_traffic {
    double in, out;
} wd_optimizer_traffic;

/* Of a network of `weights` elements, `islands` of them islands, of which `share` are this rank's.
 */
wd_optimizer_traffic wd_optimizer_host_traffic(wd_dtype dtype, wd_dtype gradients, double weights,
                                               double islands, double share, bool ema_alone);

/* AdEMAMix's weight and decay of the slow moments at `progress`. The weight grows linearly from 0.
 * The number of steps over which the moments average grows linearly too, from beta1's to beta3's
 * (both as in AdEMAMix's paper), so that early gradients, which say little, are soon forgotten. */
typedef struct wd_slow_moments {
    double alpha, beta3;
} wd_slow_moments;
wd_slow_moments wd__slow_moments_at(const wd_optimizer_options *options, double progress);

/* [1] each, device: of the latest step; overwritten by the next. */
const float *wd_optimizer_norm(const wd_optimizer *optimizer);    /* before clipping */
const float *wd__optimizer_factor(const wd_optimizer *optimizer); /* 0: the step was dropped */

/* Whether x [count] (device) and the sum of its squares are finite. Overwrites the sum of the
 * gradients' squares, and waits for `queue`. */
bool wd_optimizer_finds_finite(const wd_optimizer *optimizer, const float *x, int64_t count,
                               wd_queue *queue);

/* The same of a buffer of the parameters; of a packed one of this rank's share. */
bool wd_optimizer_buffer_is_finite(const wd_optimizer *optimizer, wd_params_buffer buffer,
                                   wd_queue *queue);

/* ---- learning rate ---- */

typedef enum wd_lr_shape { WD_LR_CONSTANT, WD_LR_COSINE } wd_lr_shape;

typedef struct wd_lr_schedule {
    wd_lr_shape shape;
    double lr;            /* the highest */
    double ratio_min;     /* cosine ends at lr * ratio_min */
    int64_t warmup_steps; /* linear from lr / warmup_steps */
} wd_lr_schedule;

/* Of step `step` (0 = the first), at `progress` in [0, 1]: the share of the steps, or of the time,
 * that is used up. */
double wd_lr_at(const wd_lr_schedule *schedule, int64_t step, double progress);

#endif
