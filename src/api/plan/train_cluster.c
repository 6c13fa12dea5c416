/* Memory of a run's devices and hosts: see api/plan/train_cluster.h. */
#include "api/plan/train_cluster.h"

#include <string.h>

#include "core/host.h"
#include "core/memory.h"

/* Memory of libraries and allocators is measured, not planned. Measurements differ by less than
 * this between runs, and from the items of a plan. */
enum { PROGRAM_SLACK = 1 << 20 };

int wd_train_ranks(const wd_train_setup *setup)
{
    const wd_comm *comm = setup->comm;
    return comm ? comm->ranks : 1;
}

bool wd__train_has_others(const wd_train_setup *setup)
{
    return wd_train_ranks(setup) > 1 && setup->comm->vtable;
}

wd_status wd__train_gather(void **all, const void *mine, size_t bytes, wd_comm *comm, wd_err *err)
{
    WD_TRY(wd_alloc(all, (size_t)comm->ranks, bytes, "what ranks have", err));
    memcpy((char *)*all + (size_t)comm->rank * bytes, mine, bytes);
    wd_comm_allgather_small(comm, *all, bytes);
    return WD_OK;
}

/* ---- budgets ---- */

/* The memory of a rank. */
typedef struct memory {
    int host;
    size_t budget;      /* --host_memory; SIZE_MAX: not given */
    size_t free, taken; /* free memory of its host; memory that the rank has allocated */
    size_t
        without_teacher[2]; /* memory that it will need without the teacher: as wd_train_plan's */
    size_t device[WD_PLACED_DEVICES_MAX];
} memory;

static size_t sum(size_t a, size_t b)
{
    return a < SIZE_MAX - b ? a + b : SIZE_MAX;
}

static void lower_to(size_t *least, size_t bytes)
{
    if (bytes < *least) *least = bytes;
}

static void raise_to(size_t *most, size_t bytes)
{
    if (bytes > *most) *most = bytes;
}

/* The host memory of everything but the teacher, without the program; `i` as of wd_train_plan's. */
static size_t host_without_teacher(const wd_train_plan *p, int i)
{
    return wd_memory_plan_training_peak(&p->without_teacher[i], WD_MEMORY_HOST);
}

/* The memory of a host for its ranks: --host_memory, or the free memory plus that which they
 * already have. */
static size_t host_budget(const memory *all, int ranks, int host)
{
    size_t budget = SIZE_MAX, free = SIZE_MAX, taken = 0;
    for (int r = 0; r < ranks; r++) {
        if (all[r].host != host) continue;
        lower_to(&budget, all[r].budget);
        lower_to(&free, all[r].free);
        taken = sum(taken, all[r].taken);
    }
    return budget < SIZE_MAX ? budget : sum(free, taken);
}

static wd_status measure_memory(memory *out, const wd_train_plan *p, const wd_train_setup *s,
                                wd_err *err)
{
    const char *given = s->options.host_memory;
    const wd_comm *comm = s->comm;
    const size_t now = wd_host_memory_own();
    *out = (memory){.host = comm ? comm->host : 0,
                    .budget = SIZE_MAX,
                    .free = wd_host_memory_available(),
                    .taken = now > s->bytes_before ? now - s->bytes_before : 0,
                    .without_teacher = {host_without_teacher(p, 0), host_without_teacher(p, 1)}};
    if (given) WD_TRY(wd_bytes_parse(&out->budget, "--host_memory", given, err));
    for (int d = 0; d < p->devices->count; d++)
        out->device[d] =
            d == p->devices->processor ? SIZE_MAX : wd_device_bytes_max(p->devices->device[d]);
    return WD_OK;
}

static wd_status agree_on_memory(wd_train_plan *p, const wd_train_setup *s, wd_err *err)
{
    memory mine, *all = &mine;
    wd_cluster *cluster = &p->input.cluster;
    const int ranks = wd__train_has_others(s) ? wd_train_ranks(s) : 1;
    WD_TRY(measure_memory(&mine, p, s, err));
    if (ranks > 1) WD_TRY(wd__train_gather((void **)&all, &mine, sizeof mine, s->comm, err));
    cluster->host_bytes = SIZE_MAX;
    for (int r = 0; r < ranks; r++) {
        lower_to(&cluster->host_bytes, host_budget(all, ranks, all[r].host));
        raise_to(&cluster->host_taken, all[r].without_teacher[0]);
        raise_to(&p->input.decoding.on_processor.host_taken, all[r].without_teacher[1]);
        for (int d = 0; d < cluster->devices; d++)
            lower_to(&cluster->device[d].bytes, all[r].device[d]);
    }
    p->host_budget = cluster->host_bytes;
    if (all != &mine) wd_free(all);
    return WD_OK;
}

/* Plans the memory of everything but the teacher where device number `decoder` decodes sheets. */
static wd_status plan_decoded_on(wd_memory_plan *out, const wd_train_plan *p,
                                 const wd_stepper_options *stepper, wd_samples_options samples,
                                 int decoder, wd_err *err)
{
    samples.decoder = p->devices->teacher[decoder];
    *out = p->text;
    return wd_memory_plan_stepper(out, stepper, &samples, p->devices, NULL, err);
}

/* Plans it for the device of p->map, and where sheets may be decoded on the processor, which they
 * may without a map, for the processor. If the student's device cannot compute the VAE, the
 * processor decodes in any case. */
static wd_status plan_decoders(wd_train_plan *p, const wd_stepper_options *stepper,
                               const wd_samples_options *samples, wd_err *err)
{
    wd_err why = {0};
    const int processor = p->devices->processor;
    bool *both = &p->input.decoding.processor_may;
    *both = samples->count && !p->map.given && p->map.vae != processor;
    p->without_teacher[1] = (wd_memory_plan){0};
    const wd_status status =
        plan_decoded_on(&p->without_teacher[0], p, stepper, *samples, p->map.vae, &why);
    if (*both && status == WD_UNSUPPORTED) {
        *both = false;
        p->map.vae = processor;
        return plan_decoded_on(&p->without_teacher[0], p, stepper, *samples, processor, err);
    }
    if (status != WD_OK) {
        if (err) *err = why;
        return status;
    }
    if (!*both) return WD_OK;
    return plan_decoded_on(&p->without_teacher[1], p, stepper, *samples, processor, err);
}

/* Plans the memory of everything but the teacher, with encoding and `samples`. */
static wd_status plan_without_teacher(wd_train_plan *p, wd_stepper_options stepper,
                                      const wd_samples_options *samples, wd_err *err)
{
    wd_cluster *cluster = &p->input.cluster;
    const wd_comm *comm = stepper.comm;
    wd_comm first =
        comm ? *comm : (wd_comm){0}; /* rank 0 writes, so it needs most: all plan for it */
    first.rank = 0;
    if (comm) stepper.comm = &first;
    if (!stepper.window) stepper.window = stepper.trajectory.slots;
    if (!stepper.micro_batch) stepper.micro_batch = 1;
    wd_planner_taken *other = &p->input.decoding.on_processor;
    WD_TRY(plan_decoders(p, &stepper, samples, err));
    for (int i = 0; i < p->devices->count; i++) {
        wd_cluster_device *to = &cluster->device[i];
        to->taken = to->reads_host ? 0 : wd_memory_plan_training_peak(&p->without_teacher[0], i);
        to->workspace = p->without_teacher[0].workspace[i];
        other->taken[i] =
            to->reads_host ? 0 : wd_memory_plan_training_peak(&p->without_teacher[1], i);
        other->workspace[i] = p->without_teacher[1].workspace[i];
    }
    return WD_OK;
}

wd_status wd__train_agree_whether(bool *value, bool all, const wd_train_setup *setup, wd_err *err)
{
    bool *of_rank;
    if (!wd__train_has_others(setup)) return WD_OK;
    WD_TRY(wd__train_gather((void **)&of_rank, value, sizeof *value, setup->comm, err));
    *value = all;
    for (int r = 0; r < wd_train_ranks(setup); r++)
        if (of_rank[r] != all) *value = !all;
    wd_free(of_rank);
    return WD_OK;
}

static bool compute_alike(const wd_device *a, const wd_device *b)
{
    return !strcmp(wd_device_traits(a)->kernels, wd_device_traits(b)->kernels);
}

wd_status wd__train_cluster_budgets(wd_train_plan *p, const wd_train_setup *s,
                                    const wd_train_plan *like, wd_err *err)
{
    const wd_devices *d = p->devices;
    wd_cluster *cluster = &p->input.cluster;
    const wd_comm *comm = s->comm;
    cluster->ranks = wd_train_ranks(s);
    cluster->hosts = comm ? comm->hosts : 1;
    cluster->devices = d->count;
    if (cluster->ranks * cluster->devices > WD_CLUSTER_DEVICES_MAX)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%d ranks of %d devices: expected at most %d devices in all", cluster->ranks,
                       cluster->devices, WD_CLUSTER_DEVICES_MAX);
    for (int i = 0; i < d->count; i++) {
        wd_cluster_device *to = &cluster->device[i];
        p->input.devices.target[i] = d->device[i];
        to->reads_host = i == d->processor;
        to->other_bits = !compute_alike(d->device[0], d->device[i]);
        to->bytes = SIZE_MAX;
    }
    WD_TRY(plan_without_teacher(p, s->trainer.stepper, &s->trainer.samples, err));
    if (!like) return agree_on_memory(p, s, err);
    for (int i = 0; i < d->count; i++)
        cluster->device[i].bytes = like->input.cluster.device[i].bytes;
    p->program_bytes = like->program_bytes ? like->program_bytes + PROGRAM_SLACK : 0;
    cluster->host_taken = host_without_teacher(p, 0) + p->program_bytes;
    p->input.decoding.on_processor.host_taken = host_without_teacher(p, 1) + p->program_bytes;
    cluster->host_bytes = p->host_budget = like->host_budget;
    return WD_OK;
}

size_t wd_train_program_bytes(const wd_train_setup *setup)
{
    wd_host_memory_trim();
    const size_t now = wd_host_memory_own();
    return now > setup->bytes_before ? now - setup->bytes_before : 0;
}

/* Sets *bytes to the maximum over all ranks. */
static wd_status most_of_ranks(size_t *bytes, const wd_train_setup *s, wd_err *err)
{
    size_t *all;
    if (!wd__train_has_others(s)) return WD_OK;
    WD_TRY(wd__train_gather((void **)&all, bytes, sizeof *bytes, s->comm, err));
    for (int r = 0; r < wd_train_ranks(s); r++)
        if (all[r] > *bytes) *bytes = all[r];
    wd_free(all);
    return WD_OK;
}

static void add_program(wd_train_plan *p)
{
    for (int i = 0; i < 2; i++)
        wd_memory_plan_add(&p->without_teacher[i], "libraries, kernels, prompts", WD_MEMORY_PROGRAM,
                           WD_MEMORY_HOST, p->program_bytes);
    p->input.cluster.host_taken += p->program_bytes;
    p->input.decoding.on_processor.host_taken += p->program_bytes;
}

wd_status wd__train_cluster_plan_again(wd_train_plan *p, const wd_train_setup *s,
                                       const wd_samples_options *samples, wd_err *err)
{
    wd_stepper_options stepper = s->trainer.stepper;
    stepper.window = p->input.sweep.window_max; /* the requested one */
    stepper.micro_batch = p->input.sweep.micro_batch;
    WD_TRY(plan_without_teacher(p, stepper, samples, err));
    size_t host[2] = {host_without_teacher(p, 0), host_without_teacher(p, 1)};
    for (int i = 0; i < 2; i++) WD_TRY(most_of_ranks(&host[i], s, err));
    p->input.cluster.host_taken = host[0];
    p->input.decoding.on_processor.host_taken = host[1];
    add_program(p);
    return WD_OK;
}

wd_status wd__train_cluster_count_program(wd_train_plan *p, const wd_train_setup *s, wd_err *err)
{
    size_t most = wd_train_program_bytes(s);
    WD_TRY(most_of_ranks(&most, s, err));
    p->program_bytes = most + PROGRAM_SLACK;
    add_program(p);
    return WD_OK;
}
