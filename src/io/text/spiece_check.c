/* The checks of a spiece.model: see io/text/spiece.h.
 *
 * The file is a protocol buffer (ModelProto of SentencePiece). A pass over its fields checks
 *
 * - the pieces: the library builds its trie by a recursion as deep as the longest piece has bytes,
 *   and writes the user-defined pieces that match at one position into an array of 64;
 * - the character maps of normaliser and denormaliser, which hold a double array (the trie of
 *   Darts-clone) and a block of strings: the library follows the array's offsets and the offsets
 *   into the block without checking them (CVE-2026-1260, issue 1269 of its project), and writes the
 *   keys that match at one position into an array of 32;
 * - the size of everything else, since small fields cost much memory once they are parsed. */
#include "io/text/spiece.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"

enum {
    PIECES_MAX = 1 << 20,      /* UMT5 has 256,000 */
    PIECE_BYTES_MAX = 1024,    /* real pieces have below 100 */
    USER_PIECE_BYTES_MAX = 64, /* so that at most 64 pieces are prefixes of one another */
    MAP_BYTES_MAX = 4 << 20,   /* real maps have 250 kB */
    OTHER_BYTES_MAX = 1 << 20,
    KEYS_AT_ONE_PLACE_MAX = 32,
    KEY_BYTES_MAX = 128, /* of a rule of the map; real keys have below 30 */
    RULE_BYTES_MAX = 64 /* of the text by which a rule replaces its key; real texts have up to 33 */
};

/* The bytes that are not read yet. */
typedef struct bytes {
    const uint8_t *at;
    size_t left;
} bytes;

/* ---- protocol buffers ---- */

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

/* A field: its number, its wire type, and its content, which is a number or bytes. */
typedef struct field {
    uint64_t number;
    int type;
    uint64_t value;
    bytes content;
} field;

static bool read_varint(uint64_t *out, bytes *from)
{
    *out = 0;
    for (int shift = 0; shift < 64 && from->left; shift += 7) {
        const uint8_t byte = *from->at++;
        from->left--;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* Reads the next field. Groups, which the format no longer has, are refused. */
static bool read_field(field *out, bytes *from)
{
    uint64_t key, n;
    if (!read_varint(&key, from)) return false;
    *out = (field){.number = key >> 3, .type = (int)(key & 7)};
    if (out->type == VARINT) return read_varint(&out->value, from);
    if (out->type == LENGTH && !read_varint(&n, from)) return false;
    if (out->type == FIXED64)
        n = 8;
    else if (out->type == FIXED32)
        n = 4;
    else if (out->type != LENGTH)
        return false;
    if (n > from->left) return false;
    out->content = (bytes){from->at, (size_t)n};
    from->at += n;
    from->left -= (size_t)n;
    return true;
}

/* ---- character maps ---- */

/* A double array. A node is an index into the units. Its child for the byte b is the unit at index
 * ^ b, if the label of that unit is b. The offset of the child is the index of the next node; the
 * unit there holds the key's value if the child says so. */
typedef struct map {
    const uint8_t *units;
    uint32_t count;      /* of units */
    bytes strings;       /* values are offsets into these */
    uint8_t *keys_below; /* [count] 1 + most keys on a path from this node; 0: not visited */
} map;

static uint32_t unit_at(const map *m, uint32_t i)
{
    uint32_t unit;
    memcpy(&unit, m->units + 4 * (size_t)i, 4); /* little endian, as this program is */
    return unit;
}

/* Sets *place to the node to which a unit leads; false: one of its 256 children would be outside of
 * the array. */
static bool follow(uint32_t *place, const map *m, uint32_t at)
{
    const uint32_t unit = unit_at(m, at);
    *place = at ^ ((unit >> 10) << ((unit & 1u << 9) >> 6));
    return (*place | 0xff) < m->count;
}

/* Whether a value is the offset of a string that ends inside the block and is not too long. */
static bool is_string(const map *m, uint32_t value)
{
    if (value >= m->strings.left) return false;
    const size_t left = m->strings.left - value;
    return memchr(m->strings.at + value, 0, left < RULE_BYTES_MAX ? left : RULE_BYTES_MAX);
}

/* The most keys on one path from the node `place`; -1: a path leaves the array, is too long, or has
 * no end. Paths may join, so each node is visited once. */
static int count_keys(map *m, uint32_t place, int depth)
{
    enum { ON_THE_WAY = UINT8_MAX };
    int most = 0;
    if (m->keys_below[place] == ON_THE_WAY || depth > KEY_BYTES_MAX) return -1;
    if (m->keys_below[place]) return m->keys_below[place] - 1;
    m->keys_below[place] = ON_THE_WAY;
    for (uint32_t byte = 0; byte < 256; byte++) {
        const uint32_t at = place ^ byte, unit = unit_at(m, at);
        uint32_t next;
        if ((unit & (1u << 31 | 0xff)) != byte) continue;
        if (!follow(&next, m, at)) return -1;
        const bool ends_key = unit >> 8 & 1;
        if (ends_key && !is_string(m, unit_at(m, next) & INT32_MAX)) return -1;
        const int below = count_keys(m, next, depth + 1);
        if (below < 0 || below + ends_key > KEYS_AT_ONE_PLACE_MAX) return -1;
        if (below + ends_key > most) most = below + ends_key;
    }
    m->keys_below[place] = (uint8_t)(1 + most);
    return most;
}

static wd_status refuse(const char *path, const char *what, wd_err *err)
{
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: expected a SentencePiece model, but %s: the file is damaged or hostile; "
                   "get it anew from where the model is published",
                   path, what);
}

/* Checks a map: 4 bytes with the size of the double array, the double array, the block of strings.
 */
static wd_status check_map(bytes blob, const char *path, wd_err *err)
{
    static const char damaged[] = "its precompiled_charsmap leads out of itself";
    uint32_t array_bytes, root;
    void *keys_below;
    if (!blob.left) return WD_OK; /* no map */
    if (blob.left > MAP_BYTES_MAX)
        return refuse(path, "its precompiled_charsmap has more than 4 MiB", err);
    if (blob.left <= 4) return refuse(path, damaged, err);
    memcpy(&array_bytes, blob.at, 4);
    if (array_bytes % 4 || array_bytes < 4 || array_bytes >= blob.left - 4)
        return refuse(path, damaged, err);
    map m = {.units = blob.at + 4,
             .count = array_bytes / 4,
             .strings = {blob.at + 4 + array_bytes, blob.left - 4 - array_bytes}};
    if (!follow(&root, &m, 0)) return refuse(path, damaged, err);
    WD_TRY(wd_alloc(&keys_below, m.count, 1, "a check of the tokenizer", err));
    m.keys_below = keys_below;
    const int most = count_keys(&m, root, 0);
    wd_free(keys_below);
    return most < 0 ? refuse(path, damaged, err) : WD_OK;
}

/* ---- the model ---- */

static wd_status check_normalizer(bytes spec, size_t *other, const char *path, wd_err *err)
{
    enum { CHARSMAP = 2 };
    field f;
    while (spec.left) {
        if (!read_field(&f, &spec)) return refuse(path, "its normalizer_spec is cut off", err);
        if (f.number == CHARSMAP && f.type == LENGTH)
            WD_TRY(check_map(f.content, path, err));
        else
            *other += f.content.left + 1;
    }
    return WD_OK;
}

static wd_status check_piece(bytes piece, size_t *other, const char *path, wd_err *err)
{
    enum { PIECE = 1, SCORE = 2, TYPE = 3, USER_DEFINED = 4 };
    size_t length = 0;
    bool is_user_defined = false;
    field f;
    while (piece.left) {
        if (!read_field(&f, &piece)) return refuse(path, "a piece is cut off", err);
        if (f.number == PIECE && f.type == LENGTH) {
            if (memchr(f.content.at, 0, f.content.left))
                return refuse(path, "a piece has a byte that is 0", err);
            if (f.content.left > length) length = f.content.left;
        } else if (f.number == SCORE && f.type == FIXED32) {
            float score;
            memcpy(&score, f.content.at, sizeof score);
            if (!isfinite(score)) return refuse(path, "the score of a piece is no number", err);
        } else if (f.number == TYPE && f.type == VARINT) {
            is_user_defined |= f.value == USER_DEFINED;
        } else {
            *other += f.content.left + 1;
        }
    }
    if (length > PIECE_BYTES_MAX) return refuse(path, "a piece has more than 1024 bytes", err);
    if (is_user_defined && length > USER_PIECE_BYTES_MAX)
        return refuse(path, "a piece that a user defined has more than 64 bytes", err);
    return WD_OK;
}

wd_status wd__spiece_check(const void *model, size_t model_bytes, const char *path, wd_err *err)
{
    enum { PIECES = 1, NORMALIZER = 3, DENORMALIZER = 5 };
    bytes left = {model, model_bytes};
    size_t other = 0;
    int64_t pieces = 0;
    field f;
    while (left.left) {
        if (!read_field(&f, &left)) return refuse(path, "it is cut off or something else", err);
        const bool is_message = f.type == LENGTH;
        if (is_message && f.number == PIECES) {
            if (++pieces > PIECES_MAX) return refuse(path, "it has more than 1048576 pieces", err);
            WD_TRY(check_piece(f.content, &other, path, err));
        } else if (is_message && (f.number == NORMALIZER || f.number == DENORMALIZER)) {
            WD_TRY(check_normalizer(f.content, &other, path, err));
        } else {
            other += f.content.left + 1;
        }
    }
    if (other > OTHER_BYTES_MAX)
        return refuse(path, "it has more than 1 MiB beside pieces and character maps", err);
    return WD_OK;
}
