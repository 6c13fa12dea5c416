/* The flat parameters: layout, memory, views. See params.h for the layout and its reasons. */
#include "train/network/params.h"

#include <assert.h>
#include <string.h>

#include "core/checked.h"
#include "core/error.h"
#include "core/memory.h"
#include "dev/moments.h"

static wd_status lay_out(wd_params *params, wd_err *err)
{
    const wd_tensor_table *table = &params->table;
    WD_TRY(wd_alloc((void **)&params->offset, (size_t)table->count, sizeof *params->offset,
                    "offsets of the parameters", err));
    int64_t end = 0;
    for (int64_t i = 0; i < table->count; i++) {
        wd_tensor view = wd_params_tensor(params, WD_PARAMS_P, i);
        params->offset[i] = end;
        params->weights += wd_tensor_count(&view);
        end += (int64_t)wd_round_up((size_t)wd_tensor_count(&view), WD_PARAMS_ALIGN);
    }
    params->count = end;
    return WD_OK;
}

/* Elements that ranks exchange at a time: 16 MiB, which links are good at, and little beside a
 * student that has more than one of them. */
enum { BUCKET_MAX = 1 << 22 };

wd_pieces wd__params_cut(int64_t count, int ranks)
{
    return wd_pieces_cut(count, WD_SUM_CHUNK, BUCKET_MAX, ranks);
}

wd_pieces wd__params_pieces(const wd_params *params, int ranks)
{
    return wd__params_cut(params->count, ranks);
}

/* Whether passes read or write the buffer itself. */
static bool passes_take(const wd_params *params, wd_params_buffer buffer)
{
    return buffer == WD_PARAMS_G || (buffer == WD_PARAMS_P && params->dtype == WD_F32);
}

bool wd__params_is_packed(const wd_params *params, wd_params_buffer buffer)
{
    return params->pieces.ranks && !passes_take(params, buffer);
}

bool wd_params_is_on_host(const wd_params *params, wd_params_buffer buffer)
{
    if (buffer == WD_PARAMS_EMA && (params->kinds & WD_PARAMS_EMA_ON_HOST)) return true;
    return (params->kinds & WD_PARAMS_STATE_ON_HOST) && !passes_take(params, buffer);
}

bool wd_params_is_in_8_bits(const wd_params *params, wd_params_buffer buffer)
{
    return (params->kinds & WD_PARAMS_MOMENTS_IN_8_BITS) &&
           (buffer == WD_PARAMS_M || buffer == WD_PARAMS_V);
}

bool wd__params_is_split(const wd_params *params)
{
    return params->dtype == WD_BF16 && (params->kinds & WD_PARAMS_TRAINED) &&
           !(params->kinds & WD_PARAMS_STATE_ON_HOST);
}

uint16_t *wd__params_remainders(const wd_params *params, int64_t at)
{
    WD_REQUIRE(wd__params_is_split(params), "%s have no remainders",
               params->names->buffer[WD_PARAMS_P]);
    return (uint16_t *)params->buffer[WD_PARAMS_P] + at;
}

bool wd__params_is_aside(const wd_params *params, wd_params_buffer buffer)
{
    return wd__params_is_packed(params, buffer) || wd_params_is_on_host(params, buffer) ||
           wd_params_is_in_8_bits(params, buffer) ||
           (buffer == WD_PARAMS_P && wd__params_is_split(params));
}

int64_t wd_params_elements(const wd_params *params, wd_params_buffer buffer)
{
    const int64_t packed = params->share ? params->share : 1;
    return wd__params_is_packed(params, buffer) ? packed : params->count;
}

/* Codes in 8 bits, before the first scale. */
static size_t codes_bytes(const wd_params *params, wd_params_buffer buffer)
{
    return wd_round_up((size_t)wd_params_elements(params, buffer), WD_MOMENT_GROUP);
}

wd_dtype wd__params_grad_type(const wd_params *params)
{
    return params->kinds & WD_PARAMS_GRADIENTS_IN_BF16 ? WD_BF16 : WD_F32;
}

void *wd__params_grad(const wd_params *params, int64_t first)
{
    char *gradients = (char *)params->buffer[WD_PARAMS_G];
    return gradients + wd_dtype_size(wd__params_grad_type(params), first);
}

size_t wd_params_buffer_bytes(const wd_params *params, wd_params_buffer buffer)
{
    const size_t codes = codes_bytes(params, buffer);
    if (buffer == WD_PARAMS_G) return wd_dtype_size(wd__params_grad_type(params), params->count);
    if (wd_params_is_in_8_bits(params, buffer))
        return codes + codes / WD_MOMENT_GROUP * sizeof(uint16_t);
    const bool split = buffer == WD_PARAMS_P && wd__params_is_split(params);
    const size_t each = split ? sizeof(uint16_t) : sizeof(float);
    return (size_t)wd_params_elements(params, buffer) * each;
}

wd_moments8 wd__params_moments(const wd_params *params, wd_params_buffer buffer, int64_t at)
{
    static_assert((int)WD_PARAMS_ALIGN % (int)WD_MOMENT_GROUP == 0, "no tensor begins in a group");
    char *codes = (char *)params->buffer[buffer];
    uint16_t *scales = (uint16_t *)(codes + codes_bytes(params, buffer));
    WD_REQUIRE(wd_params_is_in_8_bits(params, buffer) && at % WD_MOMENT_GROUP == 0,
               "%s from element %lld on are no groups in 8 bits", params->names->buffer[buffer],
               (long long)at);
    return (wd_moments8){codes + at, scales + at / WD_MOMENT_GROUP};
}

static bool wants(const wd_params *params, wd_params_buffer buffer)
{
    switch (buffer) {
    case WD_PARAMS_P:
        return params->dtype == WD_F32 || !(params->kinds & WD_PARAMS_AS_COMPUTED);
    case WD_PARAMS_EMA:
        return params->kinds & WD_PARAMS_WITH_EMA;
    case WD_PARAMS_SLOW:
        return params->kinds & WD_PARAMS_WITH_SLOW;
    default:
        return params->kinds & WD_PARAMS_TRAINED;
    }
}

static void share(wd_params *params, const wd_params_options *options)
{
    if (options->ranks == 1) return;
    params->pieces = wd__params_pieces(params, options->ranks);
    params->rank = options->rank;
    params->share = wd_pieces_share(&params->pieces, options->rank);
}

/* Islands that passes take from elsewhere, since `p` is aside or is not there. */
static wd_status open_islands(wd_params *params, wd_err *err)
{
    const wd_tensor_table *table = &params->table;
    if (!wd__params_is_aside(params, WD_PARAMS_P) && wants(params, WD_PARAMS_P)) return WD_OK;
    WD_TRY(wd_alloc((void **)&params->island_offset, (size_t)table->count,
                    sizeof *params->island_offset, "offsets of the parameters", err));
    for (int64_t i = 0; i < table->count; i++) {
        if (wd_spec_dtype(&table->spec[i], params->dtype) != WD_F32) continue;
        const int64_t end = i + 1 < table->count ? params->offset[i + 1] : params->count;
        params->island_offset[i] = params->islands_count;
        params->islands_count += end - params->offset[i];
    }
    return wd_device_alloc((void **)&params->islands, params->device,
                           (size_t)params->islands_count * sizeof(float), params->names->islands,
                           err);
}

int64_t wd__params_stage_max(const wd_params *params)
{
    int64_t most = 0, first, count;
    for (int stage = 0; stage < wd_dit_stages(&params->config); stage++) {
        wd__params_stage_range(&first, &count, params, stage);
        if (count > most) most = count;
    }
    return most;
}

/* Copy and gradients side by side, which together are a place for all weights in F32. */
static wd_status open_gradients_in_bf16(wd_params *params, wd_err *err)
{
    const wd_params_names *names = params->names;
    const size_t each = (size_t)params->count * sizeof(uint16_t);
    void *both;
    WD_TRY(wd_device_alloc(&both, params->device, 2 * each, names->copy_and_gradients, err));
    params->copy = both;
    params->room = both;
    params->buffer[WD_PARAMS_G] = (float *)(void *)((char *)both + each);
    if (wd__params_is_split(params))
        WD_TRY(wd_host_alloc((void **)&params->kept, params->device, each, names->kept_copy, err));
    return wd_device_alloc((void **)&params->stage_grads, params->device,
                           (size_t)wd__params_stage_max(params) * sizeof(float),
                           names->stage_gradients, err);
}

static const char *name_of(const wd_params *params, wd_params_buffer buffer)
{
    const bool split = buffer == WD_PARAMS_P && wd__params_is_split(params);
    return split ? params->names->remainders : params->names->buffer[buffer];
}

static wd_status open_buffers(wd_params *params, wd_err *err)
{
    const bool bf16_gradients = wd__params_grad_type(params) == WD_BF16;
    if (bf16_gradients) WD_TRY(open_gradients_in_bf16(params, err));
    for (int i = 0; i < WD_PARAMS_BUFFERS; i++) {
        const wd_params_buffer buffer = (wd_params_buffer)i;
        const size_t bytes = wd_params_buffer_bytes(params, buffer);
        void **to = (void **)&params->buffer[i];
        if (params->buffer[i] || !wants(params, buffer)) continue;
        if (wd_params_is_on_host(params, buffer))
            WD_TRY(wd_host_alloc(to, params->device, bytes, name_of(params, buffer), err));
        else
            WD_TRY(wd_device_alloc(to, params->device, bytes, name_of(params, buffer), err));
    }
    if (bf16_gradients) return WD_OK;
    params->room = params->buffer[WD_PARAMS_G];
    if (wd__params_is_split(params)) params->kept = (uint16_t *)params->room;
    if (params->dtype == WD_F32) return WD_OK;
    return wd_device_alloc((void **)&params->copy, params->device,
                           (size_t)params->count * sizeof(uint16_t), params->names->copy, err);
}

const wd_params_names wd_params_student = WD_PARAMS_NAMES("student", "");

wd_status wd_params_open(wd_params *out, const wd_dit_config *config, wd_dtype dtype,
                         unsigned kinds, wd_device *device, wd_err *err)
{
    const wd_params_options options = {
        .names = &wd_params_student, .config = config, .dtype = dtype, .kinds = kinds, .ranks = 1};
    return wd_params_open_with(out, &options, device, err);
}

wd_status wd_params_open_with(wd_params *out, const wd_params_options *options, wd_device *device,
                              wd_err *err)
{
    const wd_params_names *names = options->names;
    assert(options->dtype == WD_F32 || options->dtype == WD_BF16);
    WD_REQUIRE(!(options->kinds & WD_PARAMS_AS_COMPUTED) ||
                   (options->kinds == WD_PARAMS_AS_COMPUTED && options->ranks == 1),
               "%s: weights without masters are trained, averaged or shared", names->prefix);
    WD_REQUIRE(!(options->kinds & WD_PARAMS_GRADIENTS_IN_BF16) ||
                   (options->dtype == WD_BF16 && options->kinds & WD_PARAMS_TRAINED),
               "%s: a network that has no gradients, or computes in fp32, has them in bf16",
               names->prefix);
    wd_params params = {.names = names,
                        .config = *options->config,
                        .dtype = options->dtype,
                        .kinds = options->kinds,
                        .device = device};
    wd_status status = WD_OK;
    WD_TRY_OUT(wd_dit_table_open(&params.table, &params.config, err));
    WD_TRY_OUT(lay_out(&params, err));
    share(&params, options);
    WD_TRY_OUT(open_islands(&params, err));
    WD_TRY_OUT(open_buffers(&params, err));
out:
    if (status == WD_OK)
        *out = params;
    else
        wd_params_close(&params);
    return status;
}

void wd_params_close(wd_params *params)
{
    if (wd__params_grad_type(params) == WD_BF16) {
        params->buffer[WD_PARAMS_G] = NULL; /* a part of the copy's block */
        wd_host_free(params->device, params->kept);
    }
    for (int i = 0; i < WD_PARAMS_BUFFERS; i++) {
        if (wd_params_is_on_host(params, (wd_params_buffer)i))
            wd_host_free(params->device, params->buffer[i]);
        else if (params->buffer[i])
            wd_device_free(params->device, params->buffer[i]);
    }
    if (params->copy) wd_device_free(params->device, params->copy);
    if (params->stage_grads) wd_device_free(params->device, params->stage_grads);
    if (params->islands) wd_device_free(params->device, params->islands);
    wd_free(params->island_offset);
    wd_free(params->offset);
    wd_dit_table_close(&params->table);
    *params = (wd_params){0};
}

size_t wd_params_bytes(const wd_params *params)
{
    size_t bytes = params->copy ? (size_t)params->count * sizeof(uint16_t) : 0;
    for (int i = 0; i < WD_PARAMS_BUFFERS; i++) {
        if (params->buffer[i] && !wd_params_is_on_host(params, (wd_params_buffer)i))
            bytes += wd_params_buffer_bytes(params, (wd_params_buffer)i);
    }
    if (params->stage_grads) bytes += (size_t)wd__params_stage_max(params) * sizeof(float);
    return bytes + (size_t)params->islands_count * sizeof(float);
}

size_t wd_params_kept_bytes(const wd_params *params)
{
    const bool in_host_memory = params->kept && params->stage_grads;
    return in_host_memory ? (size_t)params->count * sizeof *params->kept : 0;
}

wd_tensor wd_params_tensor(const wd_params *params, wd_params_buffer buffer, int64_t line)
{
    const wd_tensor_spec *spec = &params->table.spec[line];
    float *base = wd__params_is_aside(params, buffer) ? NULL : params->buffer[buffer];
    wd_tensor view = {
        .data = base ? base + params->offset[line] : NULL, .dtype = WD_F32, .ndim = spec->ndim};
    memcpy(view.dim, spec->dim, sizeof view.dim);
    return view;
}

wd_tensor wd_params_weight(const wd_params *params, int64_t line)
{
    wd_tensor out = wd_params_tensor(
        params, wd__params_is_aside(params, params->shown) ? WD_PARAMS_P : params->shown, line);
    out.dtype = wd_spec_dtype(&params->table.spec[line], params->dtype);
    if (out.dtype == WD_BF16)
        out.data = params->copy + params->offset[line];
    else if (params->islands)
        out.data = params->islands + params->island_offset[line];
    return out;
}

void wd__params_weights(wd_dit_stage *out, const wd_params *params, int stage)
{
    int64_t first = wd_dit_stage_first(&params->config, stage);
    int slots = wd_dit_stage_slots(&params->config, stage);
    WD_REQUIRE(!params->is_kept || params->shown == WD_PARAMS_EMA,
               "weights are asked for where buffers are brought together");
    *out = (wd_dit_stage){0};
    for (int slot = 0; slot < slots; slot++) out->t[slot] = wd_params_weight(params, first + slot);
}

void wd__params_grads(wd_dit_stage *out, const wd_params *params, int stage)
{
    int64_t first = wd_dit_stage_first(&params->config, stage);
    int slots = wd_dit_stage_slots(&params->config, stage);
    WD_REQUIRE(params->buffer[WD_PARAMS_G], "a student without gradients is asked for them");
    *out = (wd_dit_stage){0};
    for (int slot = 0; slot < slots; slot++) {
        const int64_t line = first + slot;
        out->t[slot] = wd_params_tensor(params, WD_PARAMS_G, line);
        if (params->stage_grads)
            out->t[slot].data = params->stage_grads + params->offset[line] - params->offset[first];
    }
}

void wd__params_begin_grads(const wd_params *params, int stage, wd_queue *queue)
{
    int64_t first, count;
    wd__params_stage_range(&first, &count, params, stage);
    if (params->stage_grads)
        wd_op_fill(queue,
                   &(wd_fill_args){.to = params->stage_grads, .type = WD_F32, .count = count});
}

void wd__params_end_grads(const wd_params *params, int stage, wd_queue *queue)
{
    int64_t first, count;
    wd__params_stage_range(&first, &count, params, stage);
    if (params->stage_grads)
        wd_op_cast(queue, &(wd_cast_args){.to = wd__params_grad(params, first),
                                          .from = params->stage_grads,
                                          .to_type = WD_BF16,
                                          .from_type = WD_F32,
                                          .count = count});
}

void wd__params_stage_range(int64_t *first, int64_t *count, const wd_params *params, int stage)
{
    int64_t line = wd_dit_stage_first(&params->config, stage);
    int64_t next = line + wd_dit_stage_slots(&params->config, stage);
    *first = params->offset[line];
    *count = (next < params->table.count ? params->offset[next] : params->count) - *first;
}

float *wd_params_whole(const wd_params *params, wd_params_buffer buffer)
{
    return wd__params_is_aside(params, buffer) ? params->room : params->buffer[buffer];
}

wd_tensor wd_params_whole_tensor(const wd_params *params, wd_params_buffer buffer, int64_t line)
{
    wd_tensor view = wd_params_tensor(params, buffer, line);
    float *whole = wd_params_whole(params, buffer);
    view.data = whole ? whole + params->offset[line] : NULL;
    return view;
}

void wd_params_zero_grads(const wd_params *params, wd_queue *queue)
{
    WD_REQUIRE(!params->is_kept, "gradients are zeroed while the copy of the weights is kept");
    wd__params_await_weights(params, queue); /* which the host steps by these gradients */
    wd_op_fill(queue, &(wd_fill_args){.to = params->buffer[WD_PARAMS_G],
                                      .type = wd__params_grad_type(params),
                                      .count = params->count});
}
