/* A shared network: see train/network/shard.h. */
#include "train/network/shard.h"

#include <assert.h>

#include "core/error.h"
#include "core/memory.h"
#include "dev/ops.h"

/* A part of an island that one rank owns. */
typedef struct segment {
    int64_t first, island, packed, count; /* elements: in what is whole, in islands, in the owner's
                                           * packed buffers */
} segment;

struct wd_shard {
    wd_params *params;
    wd_reduce *reduce;
    wd_comm *comm;
    wd_event *copied;
    /* sums of squares of chunks, owner by owner */
    double *sums;      /* [own] device */
    double *host_sums; /* [chunks] */
    size_t *sums_at;   /* [ranks + 1] bytes */
    float *host_sum;   /* [1] on its way to the device */
    /* parts of islands, owner by owner */
    segment *segments;
    int64_t *segment_first; /* [ranks + 1] */
    float *host_islands;    /* [islands_count] */
    size_t *islands_at;     /* [ranks + 1] bytes */
};

/* This rank's piece of a bucket. */
static wd_params_part own_of(const wd_shard *s, int64_t bucket)
{
    const wd_params *p = s->params;
    const wd_range range = wd_pieces_piece(&p->pieces, bucket, p->rank);
    return (wd_params_part){.first = range.first,
                            .count = wd_range_count(range),
                            .packed = wd_pieces_packed(&p->pieces, bucket, p->rank)};
}

static int64_t buckets_of(const wd_shard *s)
{
    return wd_pieces_buckets(&s->params->pieces);
}

static int64_t chunks_of(int64_t count)
{
    return (count + WD_SUM_CHUNK - 1) / WD_SUM_CHUNK;
}

/* ---- what an open one has ---- */

/* Lists every part of an island that `rank` owns, in one order on all ranks; returns how many
 * there are. `out` may be NULL. */
static int64_t list_segments(segment *out, const wd_params *p, int rank)
{
    int64_t n = 0;
    for (int64_t line = 0; line < p->table.count; line++) {
        if (wd_spec_dtype(&p->table.spec[line], p->dtype) != WD_F32) continue;
        const int64_t first = p->offset[line];
        const int64_t end = line + 1 < p->table.count ? p->offset[line + 1] : p->count;
        for (int64_t b = first / p->pieces.bucket; b * p->pieces.bucket < end; b++) {
            const wd_range piece = wd_pieces_piece(&p->pieces, b, rank);
            const int64_t from = piece.first > first ? piece.first : first;
            const int64_t to = piece.end < end ? piece.end : end;
            if (from >= to) continue;
            if (out)
                out[n] =
                    (segment){.first = from,
                              .island = p->island_offset[line] + from - first,
                              .packed = wd_pieces_packed(&p->pieces, b, rank) + from - piece.first,
                              .count = to - from};
            n++;
        }
    }
    return n;
}

static wd_status open_islands(wd_shard *s, wd_err *err)
{
    const wd_params *p = s->params;
    const int ranks = p->pieces.ranks;
    static const char what[] = "fp32 islands that ranks exchange";
    int64_t all = 0;
    if (!p->islands) return WD_OK;
    WD_TRY(wd_alloc((void **)&s->segment_first, (size_t)ranks + 1, sizeof(int64_t), what, err));
    WD_TRY(wd_alloc((void **)&s->islands_at, (size_t)ranks + 1, sizeof(size_t), what, err));
    WD_TRY(wd_host_alloc((void **)&s->host_islands, p->device,
                         (size_t)p->islands_count * sizeof(float), what, err));
    for (int r = 0; r < ranks; r++) all += list_segments(NULL, p, r);
    WD_TRY(wd_alloc((void **)&s->segments, (size_t)all, sizeof *s->segments, what, err));
    for (int r = 0; r < ranks; r++) {
        const int64_t first = s->segment_first[r];
        const int64_t end = first + list_segments(s->segments + first, p, r);
        s->segment_first[r + 1] = end;
        s->islands_at[r + 1] = s->islands_at[r];
        for (int64_t i = first; i < end; i++)
            s->islands_at[r + 1] += (size_t)s->segments[i].count * sizeof(float);
    }
    return WD_OK;
}

static wd_status open_sums(wd_shard *s, wd_err *err)
{
    const wd_params *p = s->params;
    const int ranks = p->pieces.ranks;
    static const char what[] = "norm of the gradients";
    const int64_t mine = chunks_of(p->share);
    WD_TRY(wd_device_alloc((void **)&s->sums, p->device, (size_t)(mine + !mine) * sizeof(double),
                           "gradient norm", err));
    WD_TRY(wd_host_alloc((void **)&s->host_sums, p->device,
                         (size_t)chunks_of(p->count) * sizeof(double), what, err));
    WD_TRY(wd_alloc((void **)&s->sums_at, (size_t)ranks + 1, sizeof(size_t), what, err));
    WD_TRY(wd_host_alloc((void **)&s->host_sum, p->device, sizeof(float), what, err));
    for (int r = 0; r < ranks; r++)
        s->sums_at[r + 1] =
            s->sums_at[r] + (size_t)chunks_of(wd_pieces_share(&p->pieces, r)) * sizeof(double);
    return WD_OK;
}

/* ---- the norm ---- */

/* Adds chunks in the order of the whole: bucket by bucket, in each rank by rank. */
static double add_sums(const wd_shard *s)
{
    const wd_pieces *pieces = &s->params->pieces;
    double sum = 0;
    for (int64_t b = 0; b < wd_pieces_buckets(pieces); b++)
        for (int r = 0; r < pieces->ranks; r++) {
            const int64_t chunks = chunks_of(wd_range_count(wd_pieces_piece(pieces, b, r)));
            const double *chunk = s->host_sums + s->sums_at[r] / sizeof(double) +
                                  wd_pieces_packed(pieces, b, r) / WD_SUM_CHUNK;
            for (int64_t i = 0; i < chunks; i++) sum += chunk[i];
        }
    return sum;
}

void wd__shard_sum_squares(wd_shard *s, float *sum, wd_queue *queue)
{
    const wd_params *p = s->params;
    const size_t begin = s->sums_at[p->rank], bytes = s->sums_at[p->rank + 1] - begin;
    for (int64_t b = 0; b < buckets_of(s); b++) {
        const wd_params_part piece = own_of(s, b);
        if (!piece.count) continue;
        wd_op_sum_squares_chunks(
            queue, &(wd_sum_squares_chunks_args){.sums = s->sums + piece.packed / WD_SUM_CHUNK,
                                                 .x = wd__params_grad(p, piece.first),
                                                 .count = piece.count,
                                                 .type = wd__params_grad_type(p)});
    }
    wd_queue_copy(queue, (char *)s->host_sums + begin, s->sums, bytes);
    wd_event_record(s->copied, queue);
    wd_comm_wait(s->comm, wd_comm_gather_all(s->comm, WD_LANE_GRADIENTS, s->host_sums, s->sums_at,
                                             s->copied));
    *s->host_sum = (float)add_sums(s);
    wd_queue_copy(queue, sum, s->host_sum, sizeof(float));
}

/* ---- weights to all ---- */

/* Parts of islands from whom they belong to: those of `buffer`, P or the EMA. */
static void publish_islands(wd_shard *s, wd_params_buffer buffer, wd_queue *queue)
{
    const wd_params *p = s->params;
    const bool merges = buffer == WD_PARAMS_P && wd__params_is_split(p); /* into their place */
    float *staged = s->host_islands + s->islands_at[p->rank] / sizeof(float);
    for (int64_t i = s->segment_first[p->rank]; i < s->segment_first[p->rank + 1]; i++) {
        const segment *g = &s->segments[i];
        float *island = p->islands + g->island;
        if (merges)
            wd__params_copy_weights(
                p, island, false,
                (wd_params_part){.first = g->first, .count = g->count, .packed = g->packed}, queue);
        wd__params_copy_floats(queue, staged, merges ? island : p->buffer[buffer] + g->packed,
                               g->count);
        staged += g->count;
    }
    wd_event_record(s->copied, queue);
    wd_comm_wait(s->comm, wd_comm_gather_all(s->comm, WD_LANE_GRADIENTS, s->host_islands,
                                             s->islands_at, s->copied));
    staged = s->host_islands;
    for (int64_t i = 0; i < s->segment_first[p->pieces.ranks]; i++) {
        const segment *g = &s->segments[i];
        wd_queue_copy(queue, p->islands + g->island, staged, (size_t)g->count * sizeof(float));
        staged += g->count;
    }
}

static void publish(wd_shard *s, wd_params_buffer buffer, wd_queue *queue)
{
    const wd_params *p = s->params;
    if (p->islands) publish_islands(s, buffer, queue);
    if (p->copy)
        wd_reduce_gather(s->reduce, p->copy, sizeof *p->copy, queue);
    else
        wd_reduce_gather(s->reduce, p->buffer[WD_PARAMS_P], sizeof(float), queue);
}

void wd__shard_publish(wd_shard *s, wd_queue *queue)
{
    publish(s, WD_PARAMS_P, queue);
}

/* ---- whole and packed ---- */

/* Own pieces of a packed buffer, from where it is whole (`take`) or to there. */
static void convert(const wd_shard *s, wd_params_buffer buffer, bool take, wd_queue *queue)
{
    for (int64_t b = 0; b < buckets_of(s); b++) {
        const wd_params_part piece = own_of(s, b);
        const wd_params_range range = {.buffer = buffer,
                                       .at = s->params->room + piece.first,
                                       .first = piece.first,
                                       .count = piece.count,
                                       .packed = piece.packed,
                                       .take = take};
        if (piece.count) wd__params_convert(s->params, &range, queue);
    }
}

static void collect(wd_shard *s, wd_params_buffer buffer, wd_queue *queue)
{
    const wd_params *p = s->params;
    WD_REQUIRE(p->shown == WD_PARAMS_P, "a shared network is collected while its EMA is shown");
    convert(s, buffer, false, queue);
    wd_reduce_gather(s->reduce, p->room, sizeof *p->room, queue);
}

static void take(wd_shard *s, wd_params_buffer buffer, wd_queue *queue)
{
    convert(s, buffer, true, queue);
}

void wd__shard_copy_weights(wd_shard *s, wd_params_buffer to, wd_queue *queue)
{
    const wd_params *p = s->params;
    const bool to_host = wd_params_is_on_host(p, to);
    for (int64_t b = 0; b < buckets_of(s); b++) {
        wd_params_part piece = own_of(s, b);
        float *at = p->buffer[to] + piece.packed;
        if (!wd__params_is_packed(p, WD_PARAMS_P)) piece.packed = piece.first;
        if (piece.count) wd__params_copy_weights(p, at, to_host, piece, queue);
    }
}

/* Where `p` is whole its own pieces and those of the EMA change places. */
static void swap_ema(const wd_shard *s, wd_queue *queue)
{
    const wd_params *p = s->params;
    float *ema = p->buffer[WD_PARAMS_EMA], *aside = p->buffer[WD_PARAMS_G];
    for (int64_t b = 0; b < buckets_of(s); b++) {
        const wd_params_part piece = own_of(s, b);
        float *weights = p->buffer[WD_PARAMS_P] + piece.first;
        wd__params_copy_floats(queue, aside, weights, piece.count);
        wd__params_copy_floats(queue, weights, ema + piece.packed, piece.count);
        wd__params_copy_floats(queue, ema + piece.packed, aside, piece.count);
    }
}

static void show(wd_shard *s, wd_params_buffer buffer, wd_queue *queue)
{
    const wd_params *p = s->params;
    if (!p->copy) {
        if (buffer == p->shown) return;
        swap_ema(s, queue);
    }
    const bool casts = p->copy && !(buffer == WD_PARAMS_P && wd__params_is_split(p));
    for (int64_t b = 0; casts && b < buckets_of(s); b++) {
        const wd_params_part piece = own_of(s, b);
        if (piece.count) wd__params_cast_part(p, p, buffer, piece, queue);
    }
    publish(s, buffer, queue);
}

static const wd_params_sharing sharing = {.collect = collect, .take = take, .show = show};

wd_status wd__shard_open(wd_shard **out, wd_params *params, wd_reduce *reduce, wd_comm *comm,
                         wd_err *err)
{
    WD_REQUIRE(params->pieces.ranks == comm->ranks && params->rank == comm->rank,
               "a network shared as by rank %d of %d, on rank %d of %d", params->rank,
               params->pieces.ranks, comm->rank, comm->ranks);
    wd_shard *s;
    wd_status status;
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "a shared network", err));
    *s = (wd_shard){.params = params, .reduce = reduce, .comm = comm};
    WD_TRY_OUT(wd_event_open(&s->copied, params->device, err));
    WD_TRY_OUT(open_sums(s, err));
    WD_TRY_OUT(open_islands(s, err));
    params->sharing = &sharing;
    params->shard = s;
    *out = s;
out:
    if (status != WD_OK) wd__shard_close(s);
    return status;
}

void wd__shard_close(wd_shard *s)
{
    if (!s) return;
    s->params->sharing = NULL;
    s->params->shard = NULL;
    wd_event_close(s->copied);
    if (s->sums) wd_device_free(s->params->device, s->sums);
    wd_host_free(s->params->device, s->host_sums);
    wd_free(s->sums_at);
    wd_host_free(s->params->device, s->host_sum);
    wd_free(s->segments);
    wd_free(s->segment_first);
    wd_host_free(s->params->device, s->host_islands);
    wd_free(s->islands_at);
    wd_free(s);
}
