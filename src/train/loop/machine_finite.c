/* Finds values that are not finite: see wd_machine_check_finite in train/loop/machine.h. */
#include "train/loop/machine_impl.h"

static const wd_params_buffer kept[] = {WD_PARAMS_P, WD_PARAMS_M, WD_PARAMS_V, WD_PARAMS_SLOW,
                                        WD_PARAMS_EMA};

static wd_status check_network(const wd_machine *m, int network, wd_err *err)
{
    const wd_params *params = m->params[network];
    const wd_optimizer *optimizer = wd_network_optimizer(m->network[network]);
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
        const float *x = params->buffer[kept[k]];
        const int64_t count = wd_params_elements(params, kept[k]);
        if (!x || wd_optimizer_finds_finite(optimizer, x, count, m->queue)) continue;
        return wd_fail(err, WD_NOT_FINITE,
                       "training diverged: values of the %s are not finite. Lower --lr, or go on "
                       "from an earlier checkpoint with a lower one",
                       params->names->buffer[kept[k]]);
    }
    return WD_OK;
}

wd_status wd_machine_check_finite(const wd_machine *m, wd_err *err)
{
    for (int k = 0; k < m->networks; k++) WD_TRY(check_network(m, k, err));
    return wd_source_check_finite(m->source, wd_network_optimizer(m->network[0]), err);
}
