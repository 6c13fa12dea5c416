/* How a flat array is shared among ranks: cut into buckets, each of them into a piece per rank.
 *
 * A bucket is what travels at a time; every rank owns its piece of each, so that all of them work
 * on every bucket. All cuts but the array's end are multiples of `align` elements. Where a rank's
 * own pieces are kept without the others', they lie one behind the other: packed. */
#ifndef WD_DIST_PIECES_H
#define WD_DIST_PIECES_H

#include <stdint.h>

typedef struct wd_pieces {
    int64_t count;  /* elements */
    int64_t align;  /* elements */
    int64_t bucket; /* elements, a multiple of align; the last may have less */
    int ranks;
} wd_pieces;

/* Elements [first, end) of the flat array. */
typedef struct wd_range {
    int64_t first, end;
} wd_range;

static inline int64_t wd_range_count(wd_range range)
{
    return range.end - range.first;
}

/* Buckets of at most `bucket_max` elements (at least `align`), and enough of them that the first
 * can travel while the last is computed. */
wd_pieces wd_pieces_cut(int64_t count, int64_t align, int64_t bucket_max, int ranks);

int64_t wd_pieces_buckets(const wd_pieces *pieces);
wd_range wd_pieces_bucket(const wd_pieces *pieces, int64_t bucket);

/* What `rank` owns of a bucket; may be empty. */
wd_range wd_pieces_piece(const wd_pieces *pieces, int64_t bucket, int rank);

/* The most elements that any piece has. */
int64_t wd_pieces_piece_max(const wd_pieces *pieces);

/* Elements that `rank` owns of the buckets before `bucket`: where its piece of that one is in a
 * packed array. Of all buckets: its share. */
int64_t wd_pieces_packed(const wd_pieces *pieces, int64_t bucket, int rank);
int64_t wd_pieces_share(const wd_pieces *pieces, int rank);

#endif
