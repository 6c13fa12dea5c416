/* Values of the flat parameters on their way: between what is aside and what is whole, and to what
 * passes take. See params.h. */
#include "core/error.h"
#include "train/network/params.h"

void wd__params_await(const wd_params *params, wd_queue *queue)
{
    if (params->await) params->await(params->host, queue);
}

void wd__params_await_weights(const wd_params *params, wd_queue *queue)
{
    if (params->kinds & WD_PARAMS_STATE_ON_HOST) wd__params_await(params, queue);
}

/* ---- where the copy is ---- */

/* Whether what is aside is brought together in the copy's place. */
static bool room_has_copy(const wd_params *params)
{
    return params->stage_grads != NULL;
}

/* Before something else is written in the copy's place. */
static void keep_copy(wd_params *params, wd_queue *queue)
{
    if (!params->kept || params->is_kept) return;
    wd__params_await(params, queue); /* a step of the EMA reads it */
    wd_queue_copy(queue, params->kept, params->copy, (size_t)params->count * sizeof(uint16_t));
    params->is_kept = true;
}

static void return_copy(wd_params *params, wd_queue *queue)
{
    if (!params->is_kept) return;
    wd_queue_copy(queue, params->copy, params->kept, (size_t)params->count * sizeof(uint16_t));
    params->is_kept = false;
}

/* Room on the device for values on their way to or from host memory: gradients' place, without what
 * the kept copy takes there. *count: how many floats there is room for. */
static float *room_between(int64_t *count, const wd_params *params)
{
    float *room = params->buffer[WD_PARAMS_G];
    *count = (int64_t)(wd_params_buffer_bytes(params, WD_PARAMS_G) / sizeof *room);
    if (!params->kept || params->kept != (uint16_t *)room) return room;
    *count /= 2;
    return room + *count;
}

/* ---- whole and aside ---- */

static void settle(const wd_params_range *range, wd_queue *queue)
{
    wd_op_masters(queue, &(wd_masters_args){
                             .values = range->at, .split = true, .rows = 1, .count = range->count});
}

static void convert_masters(const wd_params *params, const wd_params_range *range, wd_queue *queue)
{
    uint16_t *const staged = (uint16_t *)params->stage_grads; /* while the copy is in host memory */
    const int64_t most = params->is_kept ? wd__params_stage_max(params) : range->count;
    for (int64_t at = 0; at < range->count; at += most) {
        const int64_t first = range->first + at, left = range->count - at;
        const wd_masters_args args = {.values = range->at + at,
                                      .copy = params->is_kept ? staged : params->copy + first,
                                      .remainder =
                                          wd__params_remainders(params, range->packed + at),
                                      .split = range->take,
                                      .rows = 1,
                                      .count = left < most ? left : most};
        const size_t bytes = (size_t)args.count * sizeof(uint16_t);
        if (params->is_kept && !range->take)
            wd_queue_copy(queue, staged, params->kept + first, bytes);
        wd_op_masters(queue, &args);
        if (params->is_kept && range->take)
            wd_queue_copy(queue, params->kept + first, staged, bytes);
    }
}

static void convert_moments(const wd_params *params, const wd_params_range *range, wd_queue *queue)
{
    if (wd_params_is_on_host(params, range->buffer)) { /* which kernels of the device do not read */
        WD_REQUIRE(params->convert, "moments in host memory are to be converted, but have no "
                                    "optimizer");
        params->convert(params->host, range, queue);
        return;
    }
    wd_op_moments(
        queue, &(wd_moments_args){.values = range->at,
                                  .codes = wd__params_moments(params, range->buffer, range->packed),
                                  .moment = wd__params_moment(range->buffer),
                                  .pack = range->take,
                                  .count = range->count});
}

void wd__params_convert(const wd_params *params, const wd_params_range *range, wd_queue *queue)
{
    const bool is_weights = range->buffer == WD_PARAMS_P;
    if (is_weights && wd__params_is_split(params)) {
        convert_masters(params, range, queue);
        return;
    }
    if (wd_params_is_in_8_bits(params, range->buffer)) {
        convert_moments(params, range, queue);
        return;
    }
    float *own = params->buffer[range->buffer] + range->packed;
    if (is_weights && range->take && params->dtype == WD_BF16) settle(range, queue);
    wd__params_copy_floats(queue, range->take ? own : range->at, range->take ? range->at : own,
                           range->count);
}

/* Whether passes take values of `p` itself, but the EMA is aside. While it is shown, its values and
 * those of `p` are in each other's place. */
static bool shows_by_exchange(const wd_params *params)
{
    return wd__params_is_aside(params, WD_PARAMS_EMA) && !wd__params_is_aside(params, WD_PARAMS_P);
}

static void require_weights_shown(const wd_params *params)
{
    WD_REQUIRE(params->shown == WD_PARAMS_P ||
                   !(shows_by_exchange(params) || wd__params_is_split(params)),
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

void wd_params_collect(wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    await_buffer(params, buffer, queue);
    if (!wd__params_is_aside(params, buffer)) return;
    if (room_has_copy(params)) keep_copy(params, queue);
    if (params->shard)
        params->sharing->collect(params->shard, buffer, queue);
    else
        wd__params_convert(
            params,
            &(wd_params_range){.buffer = buffer, .at = params->room, .count = params->count},
            queue);
}

void wd_params_clear_whole(wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    if (!wd__params_is_aside(params, buffer)) return;
    if (room_has_copy(params)) keep_copy(params, queue);
    wd_op_fill(queue, &(wd_fill_args){.to = params->room, .type = WD_F32, .count = params->count});
}

void wd_params_take(const wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    wd__params_await(params, queue);
    if (!wd__params_is_aside(params, buffer)) return;
    require_weights_shown(params);
    WD_REQUIRE(!room_has_copy(params) || !params->kept || params->is_kept,
               "%s are taken from where the copy of the weights is", params->names->buffer[buffer]);
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
        collects |= params->buffer[i] && wd__params_is_aside(params, (wd_params_buffer)i);
    if (!collects || !room_has_copy(params)) return;
    if (params->kept)
        return_copy(params, queue);
    else
        wd_params_show(params, params->shown, queue);
}

void wd__params_copy_weights(const wd_params *params, float *to, bool to_host, wd_params_part part,
                             wd_queue *queue)
{
    const bool by_room = to_host && wd__params_is_split(params); /* which a kernel merges */
    int64_t room;
    float *between = room_between(&room, params);
    for (int64_t at = 0; at < part.count; at += by_room ? room : part.count) {
        const int64_t left = part.count - at;
        const wd_params_range range = {.buffer = WD_PARAMS_P,
                                       .at = by_room ? between : to,
                                       .first = part.first + at,
                                       .count = by_room && left > room ? room : left,
                                       .packed = part.packed + at};
        wd__params_convert(params, &range, queue);
        if (by_room) wd__params_copy_floats(queue, to + at, between, range.count);
    }
}

/* ---- what passes take ---- */

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
    int64_t room;
    float *between = room_between(&room, from);
    if (!wd_params_is_on_host(from, buffer)) {
        cast_copy(to, part.first, values, part.count, queue);
        return;
    }
    for (int64_t at = 0; at < part.count; at += room) {
        const int64_t n = part.count - at < room ? part.count - at : room;
        wd__params_copy_floats(queue, between, values + at, n);
        cast_copy(to, part.first + at, between, n, queue);
    }
}

/* The weights and the EMA on the host change places. */
static void exchange_ema(const wd_params *params, wd_queue *queue)
{
    float *const p = params->buffer[WD_PARAMS_P], *const ema = params->buffer[WD_PARAMS_EMA];
    float *const between = params->buffer[WD_PARAMS_G];
    wd__params_copy_floats(queue, between, p, params->count);
    wd__params_copy_floats(queue, p, ema, params->count);
    wd__params_copy_floats(queue, ema, between, params->count);
}

/* The islands of tables that lie in `rows` stages alike, one behind the other. */
static void refresh_stage(const wd_params *params, int stage, int64_t rows, wd_queue *queue)
{
    const int64_t begin = wd_dit_stage_first(&params->config, stage);
    const int64_t end = begin + wd_dit_stage_slots(&params->config, stage);
    for (int64_t line = begin; line < end; line++) {
        if (wd_spec_dtype(&params->table.spec[line], params->dtype) != WD_F32) continue;
        const int64_t next = rows > 1 ? line + end - begin : line; /* in the next stage */
        const wd_tensor island = wd_params_weight(params, line);
        const int64_t at = params->offset[line];
        wd_op_masters(queue, &(wd_masters_args){.values = island.data,
                                                .copy = params->copy + at,
                                                .remainder = wd__params_remainders(params, at),
                                                .rows = rows,
                                                .count = wd_tensor_count(&island),
                                                .values_stride = params->island_offset[next] -
                                                                 params->island_offset[line],
                                                .stride = params->offset[next] - at});
    }
}

void wd__params_refresh_islands(const wd_params *params, wd_queue *queue)
{
    const int last = wd_dit_stages(&params->config) - 1;
    refresh_stage(params, 0, 1, queue);
    refresh_stage(params, 1, params->config.layers, queue); /* all blocks */
    refresh_stage(params, last, 1, queue);
}

/* The copy and the islands of `to` = those of `from`, which are whole on all ranks. */
static void copy_what_is_shown(const wd_params *to, const wd_params *from, wd_queue *queue)
{
    wd_queue_copy(queue, to->copy, from->copy, (size_t)to->count * sizeof *to->copy);
    wd__params_copy_floats(queue, to->islands, from->islands, to->islands_count);
}

/* The copy and the islands = those of `buffer`, P or the EMA, which no ranks share. */
static void show_own(const wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    if (buffer == WD_PARAMS_P && wd__params_is_split(params)) {
        wd__params_refresh_islands(params, queue);
        return;
    }
    wd__params_cast_part(params, params, buffer, (wd_params_part){.count = params->count}, queue);
    wd__params_copy_islands(params, params->buffer[buffer], queue);
}

void wd_params_show(wd_params *params, wd_params_buffer buffer, wd_queue *queue)
{
    WD_REQUIRE((buffer == WD_PARAMS_P || buffer == WD_PARAMS_EMA) && params->buffer[buffer],
               "weights of buffer %d are to be shown", (int)buffer);
    wd__params_await(params, queue);
    if (buffer == WD_PARAMS_P)
        return_copy(params, queue);
    else
        keep_copy(params, queue);
    if (params->shard)
        params->sharing->show(params->shard, buffer, queue);
    else if (params->copy)
        show_own(params, buffer, queue);
    else if (shows_by_exchange(params) && buffer != params->shown)
        exchange_ema(params, queue);
    params->shown = buffer;
}

void wd_params_copy_computed(wd_params *to, wd_params *from, wd_params_buffer buffer,
                             wd_queue *queue)
{
    WD_REQUIRE(to->count == from->count && to->dtype == from->dtype,
               "weights of a network of %lld elements are copied to one of %lld",
               (long long)from->count, (long long)to->count);
    WD_REQUIRE(!from->is_kept, "weights are copied while the copy that passes take is kept");
    if (buffer == WD_PARAMS_P && wd__params_is_split(from)) {
        copy_what_is_shown(to, from, queue);
        return;
    }
    if (to->copy && !from->shard) {
        await_buffer(from, buffer, queue);
        wd__params_cast_part(to, from, buffer, (wd_params_part){.count = to->count}, queue);
        wd__params_copy_islands(to, from->buffer[buffer], queue);
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
