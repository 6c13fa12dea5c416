/* See job/comm/pieces.h. All buckets but the last have the same size. */
#include "job/comm/pieces.h"

#include "core/error.h"

enum { BUCKETS_WANTED = 8 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t units(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit;
}

wd_pieces wd_pieces_cut(int64_t count, int64_t align, int64_t bucket_max, int ranks)
{
    WD_REQUIRE(count > 0 && align > 0 && ranks > 0,
               "%lld elements, aligned to %lld, are cut for %d ranks", (long long)count,
               (long long)align, ranks);
    const int64_t wanted = units(units(count, BUCKETS_WANTED), align);
    const int64_t most = bucket_max / align > 0 ? bucket_max / align : 1;
    return (wd_pieces){
        .count = count, .align = align, .bucket = least(wanted, most) * align, .ranks = ranks};
}

int64_t wd_pieces_buckets(const wd_pieces *p)
{
    return units(p->count, p->bucket);
}

wd_range wd__pieces_bucket(const wd_pieces *p, int64_t bucket)
{
    const int64_t first = bucket * p->bucket;
    return (wd_range){first, least(first + p->bucket, p->count)};
}

/* The first element of a rank's piece in a bucket of `count` elements. */
static int64_t piece_begin(const wd_pieces *p, int64_t count, int rank)
{
    return least(units(count, p->align) * rank / p->ranks * p->align, count);
}

wd_range wd_pieces_piece(const wd_pieces *p, int64_t bucket, int rank)
{
    const wd_range b = wd__pieces_bucket(p, bucket);
    const int64_t count = wd_range_count(b);
    return (wd_range){b.first + piece_begin(p, count, rank),
                      b.first + piece_begin(p, count, rank + 1)};
}

int64_t wd__pieces_piece_max(const wd_pieces *p)
{
    return least(units(p->bucket / p->align, p->ranks) * p->align, p->count);
}

int64_t wd_pieces_packed(const wd_pieces *p, int64_t bucket, int rank)
{
    return bucket ? bucket * wd_range_count(wd_pieces_piece(p, 0, rank)) : 0;
}

int64_t wd_pieces_share(const wd_pieces *p, int rank)
{
    const int64_t last = wd_pieces_buckets(p) - 1;
    return wd_pieces_packed(p, last, rank) + wd_range_count(wd_pieces_piece(p, last, rank));
}
