/* The `dry` residency: shapes and made-up addresses, for planning. */
#include "core/memory.h"
#include "teacher/residency_kinds.h"

typedef struct dry {
    wd_residency base;
    wd_tensor_table table;
    wd_dit_config config;
    wd_dtype compute;
    bool gaps;
} dry;

static wd_status dry_acquire(wd_residency *self, wd_dit_stage *out, int expert, int stage,
                             wd_queue *queue, wd_err *err)
{
    (void)expert, (void)queue, (void)err;
    dry *d = (dry *)self;
    int64_t first = wd_dit_stage_first(&d->config, stage);
    uintptr_t address = (uintptr_t)1 << 20;
    *out = (wd_dit_stage){0};
    for (int i = 0; i < wd_dit_stage_slots(&d->config, stage); i++) {
        const wd_tensor_spec *spec = &d->table.spec[first + i];
        wd_tensor *t = &out->t[i];
        t->dtype = wd_spec_dtype(spec, d->compute);
        t->ndim = spec->ndim;
        for (int k = 0; k < spec->ndim; k++) t->dim[k] = spec->dim[k];
        if (!wd_tensor_count(t)) continue;
        t->data = (void *)address;
        address += ((wd_tensor_bytes(t) + 63) & ~(size_t)63) + (d->gaps ? 64 : 0);
    }
    return WD_OK;
}

static void dry_release(wd_residency *self, int expert, int stage, wd_queue *queue)
{
    (void)self, (void)expert, (void)stage, (void)queue;
}

static void dry_close(wd_residency *self)
{
    dry *d = (dry *)self;
    wd_dit_table_close(&d->table);
    wd_free(d);
}

static const wd_residency_vtable dry_vtable = {
    .acquire = dry_acquire,
    .release = dry_release,
    .close = dry_close,
};

wd_status wd_residency_open_dry(wd_residency **out, const wd_dit_config *config, int experts,
                                wd_dtype compute, bool gaps, wd_err *err)
{
    dry *d;
    WD_TRY(wd_alloc((void **)&d, 1, sizeof *d, "a residency", err));
    d->base =
        (wd_residency){.vtable = &dry_vtable, .experts = experts, .stages = wd_dit_stages(config)};
    d->config = *config;
    d->compute = compute;
    d->gaps = gaps;
    wd_status status = wd_dit_table_open(&d->table, config, err);
    if (status != WD_OK) {
        wd_free(d);
        return status;
    }
    *out = &d->base;
    return WD_OK;
}
