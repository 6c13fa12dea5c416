/* How a flat array is divided among ranks: it is cut into buckets, and each bucket into one piece
 * per rank.
 *
 * A bucket is sent as a whole. Every rank owns a piece of each bucket, so that all ranks work on
 * every bucket. All cuts but the end of the array are at multiples of `align` elements. A packed
 * array has only the pieces of one rank, one after the other. */
#ifndef WD_JOB_COMM_PIECES_H
#define WD_JOB_COMM_PIECES_H

#include <stdint.h>

typedef struct wd_pieces {
    int64_t count;  /* elements */
    int64_t align;  /* elements */
    int64_t bucket; /* elements, a multiple of align; the last bucket may have fewer */
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

/* Cuts `count` elements into buckets of at most `bucket_max` elements (at least `align`), and into
 * enough of them that the first can be sent while the last is computed. */
wd_pieces wd_pieces_cut(int64_t count, int64_t align, int64_t bucket_max, int ranks);

int64_t wd_pieces_buckets(const wd_pieces *pieces);
wd_range wd__pieces_bucket(const wd_pieces *pieces, int64_t bucket);

/* The piece of a bucket that `rank` owns; it may be empty. */
wd_range wd_pieces_piece(const wd_pieces *pieces, int64_t bucket, int rank);

/* The number of elements of the largest piece. */
int64_t wd__pieces_piece_max(const wd_pieces *pieces);

/* The elements that `rank` owns in the buckets before `bucket`, which is where its piece of
 * `bucket` begins in a packed array; and those that it owns in all buckets. */
int64_t wd_pieces_packed(const wd_pieces *pieces, int64_t bucket, int rank);
int64_t wd_pieces_share(const wd_pieces *pieces, int rank);

#endif
