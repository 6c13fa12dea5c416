/* The flat parameters: layout, memory, views. See params.h for the layout and its reasons. */
#include "train/network/params.h"

#include <assert.h>
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "core/require.h"
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

/* Whether wd_params_collect brings it together. */
static bool is_aside(const wd_params *params, wd_params_buffer buffer)
{
    return wd__params_is_packed(params, buffer) || wd_params_is_on_host(params, buffer) ||
           wd_params_is_in_8_bits(params, buffer);
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
    return (size_t)wd_params_elements(params, buffer) * sizeof(float);
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
    if (!is_aside(params, WD_PARAMS_P) && wants(params, WD_PARAMS_P)) return WD_OK;
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

/* Elements of the largest stage. */
static int64_t stage_max(const wd_params *params)
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
    return wd_device_alloc((void **)&params->stage_grads, params->device,
                           (size_t)stage_max(params) * sizeof(float), names->stage_gradients, err);
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
            WD_TRY(wd_host_alloc(to, params->device, bytes, params->names->buffer[i], err));
        else
            WD_TRY(wd_device_alloc(to, params->device, bytes, params->names->buffer[i], err));
    }
    if (bf16_gradients) return WD_OK;
    params->room = params->buffer[WD_PARAMS_G];
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
    if (wd__params_grad_type(params) == WD_BF16)
        params->buffer[WD_PARAMS_G] = NULL; /* a part of the copy's block */
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
    if (params->stage_grads) bytes += (size_t)stage_max(params) * sizeof(float);
    return bytes + (size_t)params->islands_count * sizeof(float);
}

wd_tensor wd_params_tensor(const wd_params *params, wd_params_buffer buffer, int64_t line)
{
    const wd_tensor_spec *spec = &params->table.spec[line];
    float *base = is_aside(params, buffer) ? NULL : params->buffer[buffer];
    wd_tensor view = {
        .data = base ? base + params->offset[line] : NULL, .dtype = WD_F32, .ndim = spec->ndim};
    memcpy(view.dim, spec->dim, sizeof view.dim);
    return view;
}

wd_tensor wd_params_weight(const wd_params *params, int64_t line)
{
    wd_tensor out = wd_params_tensor(
        params, is_aside(params, params->shown) ? WD_PARAMS_P : params->shown, line);
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
    return is_aside(params, buffer) ? params->room : params->buffer[buffer];
}

wd_tensor wd_params_whole_tensor(const wd_params *params, wd_params_buffer buffer, int64_t line)
{
    wd_tensor view = wd_params_tensor(params, buffer, line);
    float *whole = wd_params_whole(params, buffer);
    view.data = whole ? whole + params->offset[line] : NULL;
    return view;
}

void wd__params_await(const wd_params *params, wd_queue *queue)
{
    if (params->await) params->await(params->host, queue);
}

void wd__params_await_weights(const wd_params *params, wd_queue *queue)
{
    if (params->kinds & WD_PARAMS_STATE_ON_HOST) wd__params_await(params, queue);
}

void wd__params_convert(const wd_params *params, const wd_params_range *range, wd_queue *queue)
{
    float *whole = range->at;
    if (!wd_params_is_in_8_bits(params, range->buffer)) {
        float *own = params->buffer[range->buffer] + range->packed;
        wd__params_copy_floats(queue, range->take ? own : whole, range->take ? whole : own,
                               range->count);
        return;
    }
    if (wd_params_is_on_host(params, range->buffer)) { /* which kernels of the device do not read */
        WD_REQUIRE(params->convert, "moments in host memory are to be converted, but have no "
                                    "optimizer");
        params->convert(params->host, range, queue);
        return;
    }
    wd_op_moments(
        queue, &(wd_moments_args){.values = whole,
                                  .codes = wd__params_moments(params, range->buffer, range->packed),
                                  .moment = wd__params_moment(range->buffer),
                                  .pack = range->take,
                                  .count = range->count});
}

/* Whether passes take values of `p` itself, but the EMA is aside. While it is shown, these of its
 * values and those of `p` are in each other's place: all in F32, the islands in BF16. */
static bool shows_by_exchange(const wd_params *params)
{
    return is_aside(params, WD_PARAMS_EMA) && !is_aside(params, WD_PARAMS_P);
}

static void require_weights_shown(const wd_params *params)
{
    WD_REQUIRE(params->shown == WD_PARAMS_P || !shows_by_exchange(params),
               "buffers are collected or taken while the EMA is shown in place of the weights");
}

/* Before a buffer is read. */
static void await_buffer(const wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    require_weights_shown(params);
    if (buffer == WD_PARAMS_EMA)
        wd__params_await(params, queue);
    else
        wd__params_await_weights(params, queue);
}

void wd_params_collect(const wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    await_buffer(params, buffer, queue);
    if (!is_aside(params, buffer)) return;
    if (params->shard)
        params->sharing->collect(params->shard, buffer, queue);
    else
        wd__params_convert(
            params,
            &(wd_params_range){.buffer = buffer, .at = params->room, .count = params->count},
            queue);
}

void wd_params_clear_whole(const wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    if (is_aside(params, buffer))
        wd_op_fill(queue,
                   &(wd_fill_args){.to = params->room, .type = WD_F32, .count = params->count});
}

void wd_params_take(const wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    require_weights_shown(params);
    wd__params_await(params, queue);
    if (!is_aside(params, buffer)) return;
    if (params->shard)
        params->sharing->take(params->shard, buffer, queue);
    else
        wd__params_convert(
            params,
            &(wd_params_range){
                .buffer = buffer, .at = params->room, .count = params->count, .take = true},
            queue);
}

void wd_params_release(wd_params *params, wd_queue *queue)
{
    bool collects = false;
    for (int i = 0; i < WD_PARAMS_BUFFERS; i++)
        collects |= params->buffer[i] && is_aside(params, (wd_params_buffer)i);
    if (collects && params->stage_grads) wd_params_show(params, params->shown, queue);
}

/* Part of the copy = `from` [count] F32, device. */
static void cast_copy(const wd_params *to, int64_t first, const float *from, int64_t count,
                      wd_queue *queue)
{
    wd_op_cast(queue, &(wd_cast_args){.to = to->copy + first,
                                      .from = from,
                                      .to_type = WD_BF16,
                                      .from_type = WD_F32,
                                      .count = count});
}

/* What is on the host, which kernels do not read, comes by gradients' place, as much as it holds.
 */
void wd__params_cast_part(const wd_params *to, const wd_params *from, wd_params_buffer buffer,
                          wd_params_part part, wd_queue *queue)
{
    const float *values = from->buffer[buffer] + part.packed;
    float *between = from->buffer[WD_PARAMS_G];
    if (!wd_params_is_on_host(from, buffer)) {
        cast_copy(to, part.first, values, part.count, queue);
        return;
    }
    const int64_t room = (int64_t)(wd_params_buffer_bytes(from, WD_PARAMS_G) / sizeof *between);
    for (int64_t at = 0; at < part.count; at += room) {
        const int64_t n = part.count - at < room ? part.count - at : room;
        wd__params_copy_floats(queue, between, values + at, n);
        cast_copy(to, part.first + at, between, n, queue);
    }
}

static void cast_all(const wd_params *to, const wd_params *from, wd_params_buffer buffer,
                     wd_queue *queue)
{
    wd__params_cast_part(to, from, buffer, (wd_params_part){.count = to->count}, queue);
}

/* A range of the weights, which passes take themselves, and the EMA on the host change places. */
static void exchange_ema(const wd_params *params, int64_t first, int64_t count, wd_queue *queue)
{
    float *const p = params->buffer[WD_PARAMS_P] + first;
    float *const ema = params->buffer[WD_PARAMS_EMA] + first;
    float *const between = params->buffer[WD_PARAMS_G];
    WD_REQUIRE((size_t)count * sizeof *p <= wd_params_buffer_bytes(params, WD_PARAMS_G),
               "%lld weights do not fit where gradients are", (long long)count);
    wd__params_copy_floats(queue, between, p, count);
    wd__params_copy_floats(queue, p, ema, count);
    wd__params_copy_floats(queue, ema, between, count);
}

/* Shows `buffer`, P or the EMA, where the EMA is in host memory and the weights are on the device.
 */
static void show_by_exchange(wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    const bool changes = buffer != params->shown;
    if (!params->copy) {
        if (changes) exchange_ema(params, 0, params->count, queue);
        return;
    }
    if (buffer == WD_PARAMS_EMA && changes) cast_all(params, params, WD_PARAMS_EMA, queue);
    for (int64_t i = 0; changes && i < params->table.count; i++) {
        const wd_tensor view = wd_params_tensor(params, WD_PARAMS_P, i);
        if (wd_spec_dtype(&params->table.spec[i], params->dtype) == WD_F32)
            exchange_ema(params, params->offset[i], wd_tensor_count(&view), queue);
    }
    if (buffer == WD_PARAMS_P) cast_all(params, params, WD_PARAMS_P, queue);
}

/* The weights that passes take of `to` = those of a network that no ranks share, in BF16. */
static void copy_from_own(const wd_params *to, const wd_params *from, wd_params_buffer buffer,
                          wd_queue *queue)
{
    cast_all(to, from, buffer, queue);
    wd__params_copy_islands(to, from->buffer[buffer], queue);
}

void wd_params_show(wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    WD_REQUIRE((buffer == WD_PARAMS_P || buffer == WD_PARAMS_EMA) && params->buffer[buffer],
               "weights of buffer %d are to be shown", (int)buffer);
    wd__params_await(params, queue);
    if (params->shard)
        params->sharing->show(params->shard, buffer, queue);
    else if (shows_by_exchange(params))
        show_by_exchange(params, buffer, queue);
    else if (params->copy)
        copy_from_own(params, params, buffer, queue);
    params->shown = buffer;
}

void wd_params_copy_computed(wd_params *to, wd_params *from, wd_params_buffer buffer,
                             wd_queue *queue)
{
    WD_REQUIRE(to->count == from->count && to->dtype == from->dtype,
               "weights of a network of %lld elements are copied to one of %lld",
               (long long)from->count, (long long)to->count);
    if (to->copy && !from->shard) {
        await_buffer(from, buffer, queue);
        copy_from_own(to, from, buffer, queue);
        return;
    }
    wd_params_collect(from, buffer, queue);
    const float *whole = wd_params_whole(from, buffer);
    if (to->copy) {
        cast_copy(to, 0, whole, to->count, queue);
        wd__params_copy_islands(to, whole, queue);
    } else {
        wd__params_copy_floats(queue, to->buffer[WD_PARAMS_P], whole, to->count);
    }
    wd_params_release(from, queue);
}

void wd__params_copy_islands(const wd_params *params, const float *whole, wd_queue *queue)
{
    for (int64_t i = 0; params->islands && i < params->table.count; i++) {
        const wd_tensor island = wd_params_weight(params, i);
        if (island.dtype == WD_F32)
            wd_queue_copy(queue, island.data, whole + params->offset[i], wd_tensor_bytes(&island));
    }
}

void wd_params_zero_grads(const wd_params *params, wd_queue *queue)
{
    wd__params_await_weights(params, queue); /* which the host steps by these gradients */
    wd_op_fill(queue, &(wd_fill_args){.to = params->buffer[WD_PARAMS_G],
                                      .type = wd__params_grad_type(params),
                                      .count = params->count});
}
