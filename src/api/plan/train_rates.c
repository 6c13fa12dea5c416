/* The rates of a run's devices and links: see api/plan/train_cluster.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/plan/train_cluster.h"
#include "api/setup/rate_cache.h"
#include "core/memory.h"
#include "dev/rates.h"
#include "io/file/disk.h"

/* The assumed rate of a disk that cannot be measured. */
static const double DISK_BYTES_PER_S = 2e9;

/* The assumed rates, in FLOP/s and bytes/s, of a device with too little memory for a measurement,
 * and so for a run. */
static const double UNMEASURED_PER_S = 1e9;

static int host_ranks(const wd_train_setup *s)
{
    const wd_comm *comm = s->comm;
    return comm ? comm->host_ranks : 1;
}

/* The state of a measurement, with the key of its entry in the cache. */
typedef struct gauge {
    wd_train_plan *plan;
    const wd_train_setup *setup;
    wd_rate_cache cache;
} gauge;

static const char *processor_model(char out[96])
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(out, 96, "processor");
    while (file && fgets(line, sizeof line, file)) {
        char *model = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !model) continue;
        model[strcspn(model, "\n")] = 0;
        snprintf(out, 96, "%s", model + 2);
        break;
    }
    if (file) fclose(file);
    return out;
}

/* The kind of a device, which is part of its key. All simulated devices have one kind, since the
 * processor computes for them. GPUs with the same model and libraries have one kind. */
static const char *device_kind(const gauge *g, int i)
{
    const wd_devices *d = g->plan->devices;
    if (i == d->processor) return wd_device_name(d->device[i]);
    return d->list.device[i].type == WD_DEVICE_SIM ? "a simulated device"
                                                   : wd_device_traits(d->device[i])->kernels;
}

/* The known rate; 0: it must be measured. */
static double known_rate(const gauge *g, const char *key)
{
    return g->setup->options.measure_rates ? 0 : wd_rate_cache_get(&g->cache, key);
}

/* Takes the measured rate of device i, and adds it to the cache. A device other than the processor
 * with too little memory for the measurement gets an assumed rate. */
static wd_status take_rate(double *per_s, gauge *g, const char *key, int i, wd_status measured)
{
    if (measured == WD_OUT_OF_MEMORY && i != g->plan->devices->processor) {
        *per_s = UNMEASURED_PER_S;
        return WD_OK;
    }
    WD_TRY(measured);
    *per_s = wd_rate_cache_put(&g->cache, key, *per_s);
    return WD_OK;
}

/* Measures FLOP/s of device `i` on a queue of its own, since its workspace is in no plan. */
static wd_status compute_rate(double *flops_per_s, gauge *g, int i, wd_precision precision,
                              wd_err *err)
{
    char key[WD_RATE_KEY_MAX], model[96];
    const wd_sweep_options *o = &g->plan->input.sweep;
    const wd_dit_shape one = {.samples = 1, .frames = 1, .height = o->height, .width = o->width};
    const int64_t rows = 2 * wd_dit_tokens(&o->config, &one), width = wd_dit_width(&o->config);
    const wd_dtype dtype = precision == WD_32_BIT ? WD_F32 : WD_BF16;
    wd_queue *queue;
    snprintf(key, sizeof key, "%s products %dx%dx%d, %s (%s), %s, %d of a host",
             wd_precision_name(precision), (int)rows, (int)width, (int)o->config.ffn_dim,
             device_kind(g, i), wd_device_traits(g->plan->devices->device[i])->kernels,
             processor_model(model), wd__train_has_others(g->setup) ? host_ranks(g->setup) : 1);
    *flops_per_s = known_rate(g, key);
    if (*flops_per_s > 0) return WD_OK;
    WD_TRY(wd_queue_open(&queue, g->plan->devices->device[i], err));
    const wd_status measured =
        wd_rate_of_products(flops_per_s, queue, dtype, rows, width, o->config.ffn_dim, err);
    wd_queue_close(queue);
    return take_rate(flops_per_s, g, key, i, measured);
}

static wd_status link_rate(double *bytes_per_s, gauge *g, int i, wd_err *err)
{
    char key[WD_RATE_KEY_MAX], model[96];
    wd_queue *queue = g->plan->devices->teacher[i];
    snprintf(key, sizeof key, "link of %s, %s, %d of a host", device_kind(g, i),
             processor_model(model), wd__train_has_others(g->setup) ? host_ranks(g->setup) : 1);
    *bytes_per_s = known_rate(g, key);
    if (*bytes_per_s > 0) return WD_OK;
    return take_rate(bytes_per_s, g, key, i, wd_rate_of_link(bytes_per_s, queue, err));
}

static wd_status disk_rate(double *bytes_per_s, gauge *g, wd_err *err)
{
    char key[WD_RATE_KEY_MAX], host[96] = "";
    struct stat about = {0};
    const char *file = g->plan->weights_file;
    *bytes_per_s = DISK_BYTES_PER_S;
    if (!*file || stat(file, &about)) return WD_OK;
    gethostname(host, sizeof host - 1);
    snprintf(key, sizeof key, "disk %llx of %s", (unsigned long long)about.st_dev, host);
    *bytes_per_s = known_rate(g, key);
    if (*bytes_per_s > 0) return WD_OK;
    WD_TRY(wd_rate_of_disk(bytes_per_s, file, err));
    *bytes_per_s = wd_rate_cache_put(&g->cache, key, *bytes_per_s);
    return WD_OK;
}

/* Measures bytes/s between the ranks of a host, all ranks together. */
static wd_status memory_rate(double *bytes_per_s, gauge *g, wd_err *err)
{
    char key[WD_RATE_KEY_MAX], model[96];
    *bytes_per_s = g->plan->devices->list.memory_bytes_per_s;
    if (*bytes_per_s > 0) return WD_OK;
    snprintf(key, sizeof key, "host memory, %s", processor_model(model));
    double one = known_rate(g, key);
    if (!(one > 0)) {
        WD_TRY(wd_rate_of_memory(&one, err));
        one = wd_rate_cache_put(&g->cache, key, one);
    }
    *bytes_per_s = one * host_ranks(g->setup);
    return WD_OK;
}

/* What the processor does to weights in host memory. `bytes` are those that it moves for a weight:
 * of AdamW masters, EMA and moments (of 4 bytes or 8 bits each), which are read and written, and
 * gradients and new weights, which come and go; of the EMA alone this, and weights, which come and
 * are read. */
typedef struct host_work {
    const char *name; /* in the key of its rate */
    double bytes;
    bool gradients; /* in fp32 among these; in bf16 they are half as many, which is not measured */
    wd_status (*rate)(double *weights_per_s, wd_queue *queue, wd_err *err);
} host_work;

static const host_work adamw = {"AdamW", 2 * 8 + 2 * 4 + 2 * 2 + 2 * 8, true, wd_rate_of_adamw};
static const host_work adamw8bit = {"AdamW in 8 bits", 2 * 8 + 2 * 4 + 2 * 2 + 2 * (2 + 4.0 / 32),
                                    true, wd_rate_of_adamw8bit};
static const host_work ema = {"EMA", 2 * 4 + 2 * 4, false, wd_rate_of_ema};

/* Sets the weights that a rank's processor updates in a second: by the stated speed of host memory,
 * at which a copy reads and writes, or measured. */
static wd_status host_rate(double *weights_per_s, gauge *g, const host_work *work, wd_err *err)
{
    char key[WD_RATE_KEY_MAX], model[96];
    const wd_devices *d = g->plan->devices;
    const double all = host_ranks(g->setup);
    const bool narrow = work->gradients && g->setup->trainer.stepper.gradients == WD_BF16;
    if (d->list.memory_bytes_per_s > 0) {
        const double bytes = work->bytes - (narrow ? 2 * 2 : 0);
        *weights_per_s = 2 * d->list.memory_bytes_per_s / bytes / all;
        return WD_OK;
    }
    snprintf(key, sizeof key, "%s of %s, %s, %d of a host", work->name,
             device_kind(g, d->processor), processor_model(model),
             wd__train_has_others(g->setup) ? (int)all : 1);
    *weights_per_s = known_rate(g, key);
    if (!(*weights_per_s > 0)) {
        WD_TRY(work->rate(weights_per_s, d->host, err));
        *weights_per_s = wd_rate_cache_put(&g->cache, key, *weights_per_s);
    }
    if (!wd__train_has_others(g->setup)) *weights_per_s /= all;
    return WD_OK;
}

/* Whether the plan has a use for the rate of a precision: teacher, student, or the VAE that draws
 * sample sheets, which is in fp32, compute in it. */
static bool is_used(const gauge *g, wd_precision precision)
{
    const wd_cluster *cluster = &g->plan->input.cluster;
    return precision == cluster->teacher || precision == cluster->student ||
           (precision == WD_32_BIT && g->setup->trainer.samples.count > 0);
}

/* Sets the rates of products of device i: stated ones, else those that `like` has, else measured
 * ones where they are used. The ranks of a host share its processor; a rate that was measured
 * without the other ranks is divided here. */
static wd_status compute_rates(gauge *g, int i, const wd_cluster *like, wd_err *err)
{
    const wd_devices *d = g->plan->devices;
    wd_cluster_device *to = &g->plan->input.cluster.device[i];
    const wd_device_spec *spec = i < d->list.count ? &d->list.device[i] : NULL;
    const double all = host_ranks(g->setup), unseen = wd__train_has_others(g->setup) ? 1 : all;
    for (int k = 0; k < WD_PRECISIONS; k++) {
        double *rate = &to->flops_per_s[k];
        *rate = spec ? spec->flops_per_s[k] : d->list.processor_flops_per_s;
        if (*rate > 0) {
            if (to->reads_host) *rate /= all;
        } else if (like && like->device[i].flops_per_s[k] > 0) {
            *rate = like->device[i].flops_per_s[k];
        } else if (is_used(g, (wd_precision)k)) {
            WD_TRY(compute_rate(rate, g, i, (wd_precision)k, err));
            *rate /= unseen;
        }
    }
    return WD_OK;
}

/* Sets the rates of device i; links are those of `like`. The ranks of a host share its memory, as
 * its processor. */
static wd_status device_rates(gauge *g, int i, const wd_cluster *like, wd_err *err)
{
    const wd_devices *d = g->plan->devices;
    wd_cluster_device *to = &g->plan->input.cluster.device[i];
    const wd_device_spec *spec = i < d->list.count ? &d->list.device[i] : NULL;
    WD_TRY(compute_rates(g, i, like, err));
    to->link_bytes_per_s = to->reads_host ? INFINITY
                           : like         ? like->device[i].link_bytes_per_s
                                          : spec->link_bytes_per_s;
    if (!(to->link_bytes_per_s > 0)) {
        WD_TRY(link_rate(&to->link_bytes_per_s, g, i, err));
        if (!wd__train_has_others(g->setup)) to->link_bytes_per_s /= host_ranks(g->setup);
    }
    wd_device_restart_peak(d->device[i]); /* measuring is not part of the plan */
    return WD_OK;
}

/* Measures the rates of this rank. */
static wd_status own_rates(gauge *g, const wd_train_plan *like, wd_err *err)
{
    wd_train_plan *p = g->plan;
    wd_cluster *cluster = &p->input.cluster;
    for (int i = 0; i < cluster->devices; i++)
        WD_TRY(device_rates(g, i, like ? &like->input.cluster : NULL, err));
    WD_TRY(wd_bandwidth_parse(&cluster->network_bytes_per_s, "--network_bandwidth",
                              g->setup->options.network_bandwidth, err));
    if (like) {
        cluster->disk_bytes_per_s = like->input.cluster.disk_bytes_per_s;
        cluster->memory_bytes_per_s = like->input.cluster.memory_bytes_per_s;
        cluster->adamw_weights_per_s = like->input.cluster.adamw_weights_per_s;
        cluster->ema_weights_per_s = like->input.cluster.ema_weights_per_s;
        return WD_OK;
    }
    if (cluster->ranks > 1) WD_TRY(memory_rate(&cluster->memory_bytes_per_s, g, err));
    if (g->plan->devices->processor != 0) {
        const bool in_8_bits = g->setup->trainer.stepper.optimizer.moments_in_8_bits;
        WD_TRY(host_rate(&cluster->adamw_weights_per_s, g, in_8_bits ? &adamw8bit : &adamw, err));
        WD_TRY(host_rate(&cluster->ema_weights_per_s, g, &ema, err));
    }
    return disk_rate(&cluster->disk_bytes_per_s, g, err);
}

/* Sets every rate to the slowest of all ranks. */
static wd_status agree_on_rates(wd_train_plan *p, wd_comm *comm, wd_err *err)
{
    wd_cluster *all, *cluster = &p->input.cluster;
    WD_TRY(wd__train_gather((void **)&all, cluster, sizeof *cluster, comm, err));
    for (int r = 0; r < comm->ranks; r++) {
        cluster->disk_bytes_per_s = fmin(cluster->disk_bytes_per_s, all[r].disk_bytes_per_s);
        cluster->memory_bytes_per_s = fmin(cluster->memory_bytes_per_s, all[r].memory_bytes_per_s);
        cluster->adamw_weights_per_s =
            fmin(cluster->adamw_weights_per_s, all[r].adamw_weights_per_s);
        cluster->ema_weights_per_s = fmin(cluster->ema_weights_per_s, all[r].ema_weights_per_s);
        for (int d = 0; d < cluster->devices; d++) {
            const wd_cluster_device *other = &all[r].device[d];
            wd_cluster_device *to = &cluster->device[d];
            for (int k = 0; k < WD_PRECISIONS; k++)
                to->flops_per_s[k] = fmin(to->flops_per_s[k], other->flops_per_s[k]);
            to->link_bytes_per_s = fmin(to->link_bytes_per_s, other->link_bytes_per_s);
        }
    }
    wd_free(all);
    return WD_OK;
}

wd_status wd__train_cluster_rates(wd_train_plan *p, const wd_train_setup *s,
                                  const wd_train_plan *like, wd_err *err)
{
    gauge g = {.plan = p, .setup = s};
    wd_rate_cache_open(&g.cache);
    const wd_status status = own_rates(&g, like, err);
    wd_rate_cache_close(&g.cache);
    if (status != WD_OK || like || !wd__train_has_others(s)) return status;
    return agree_on_rates(p, s->comm, err);
}
