/* Models with which SentencePiece up to 0.2.1 would access memory out of bounds are refused before
 * the library gets them. Each is wan-tiny's model with fields appended: in a protocol buffer later
 * fields are added to earlier ones, or replace them. */
#include "testing.h"

#include "io/text/tokenizer.h"

enum { PLACE = 256, ROOM = 4 << 20, UNKNOWN = (1 << 20) + 1 };

/* A protocol buffer that is being written, inner messages first. */
typedef struct text {
    size_t bytes;
    uint8_t at[ROOM];
} text;

static void put(text *t, const void *data, size_t bytes)
{
    assert_true(bytes <= ROOM - t->bytes);
    memcpy(t->at + t->bytes, data, bytes);
    t->bytes += bytes;
}

/* A field of bytes. */
static void put_field(text *t, int number, const void *data, size_t bytes)
{
    uint8_t head[8] = {(uint8_t)(number << 3 | 2)};
    int n = 1;
    for (size_t left = bytes;; left >>= 7) {
        head[n++] = (uint8_t)((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
        if (left <= 0x7f) break;
    }
    put(t, head, (size_t)n);
    put(t, data, bytes);
}

/* Opens wan-tiny's tokenizer with `more` appended to its model, and encodes a text if that
 * succeeds. */
static wd_status try_model(const text *more, wd_err *err)
{
    char folder[WD_PATH_MAX], path[WD_PATH_MAX], *model;
    size_t bytes;
    wd_tokenizer *t = NULL;
    int32_t ids[32];
    int64_t count;
    static text whole;
    wd_test_ok(wd_file_read(&model, &bytes, WD_SOURCE_DIR "/models/wan-tiny/tokenizer/spiece.model",
                            ROOM, err),
               err);
    whole.bytes = 0;
    put(&whole, model, bytes);
    put(&whole, more->at, more->bytes);
    wd_free(model);
    wd_test_ok(wd_path_join(folder, wd_test_folder(), "model", err), err);
    wd_test_ok(wd_folder_make(folder, err), err);
    wd_test_ok(wd_path_join(path, folder, "spiece.model", err), err);
    wd_test_ok(wd_file_write(path, whole.at, whole.bytes, err), err);
    wd_status status = wd_tokenizer_open(&t, folder, err);
    if (status == WD_OK) status = wd_tokenizer_encode(ids, &count, t, "aaaa bbbb", 32, err);
    wd_tokenizer_close(t);
    return status;
}

/* ---- character maps ---- */

/* A double array of `places` blocks of 256 units each, to none of which a unit leads yet, followed
 * by the strings. */
typedef struct map {
    uint32_t unit[64 * PLACE];
    uint32_t places;
    const char *strings;
    size_t strings_bytes;
} map;

/* A unit at index `at` whose offset leads to index `to`. */
static uint32_t leads(uint32_t at, uint32_t to, uint32_t label)
{
    return (at ^ to) << 10 | label;
}

enum { ENDS_KEY = 1 << 8 };

/* Adds the keys "a", "aa", "aaa", ..., each with the string at `value`. */
static void make_chain(map *m, uint32_t keys, uint32_t value)
{
    memset(m, 0, sizeof *m);
    for (uint32_t i = 0; i < 64 * PLACE; i++) m->unit[i] = 1u << 31;
    *m->unit = leads(0, PLACE, 0);
    m->places = keys + 2;
    m->strings = "x";
    m->strings_bytes = 2;
    for (uint32_t i = 0; i < keys; i++) {
        const uint32_t at = ((i + 1) * PLACE) ^ 'a', next = (i + 2) * PLACE;
        m->unit[at] = leads(at, next, 'a') | ENDS_KEY;
        m->unit[next] = 1u << 31 | value;
    }
}

/* Adds one key of `letters` letters, whose path stays in the units from PLACE on and ends at 2
 * PLACE. */
static void make_long_key(map *m, uint32_t letters)
{
    make_chain(m, 1, 0);
    m->unit[PLACE ^ 'a'] = 1u << 31;
    for (uint32_t i = 0; i < letters; i++) {
        const bool last = i + 1 == letters;
        const uint32_t at = (PLACE + i) ^ 'a';
        m->unit[at] = leads(at, last ? 2 * PLACE : PLACE + i + 1, 'a') | (last ? ENDS_KEY : 0u);
    }
}

/* Tries a model with this map. `array_bytes`: the size that the map states, if not 0. `spec`:
 * normalizer_spec or denormalizer_spec. */
static wd_status try_map(const map *m, uint32_t array_bytes, int spec, wd_err *err)
{
    static text blob, inner, outer;
    const uint32_t bytes = m->places * PLACE * 4;
    blob.bytes = inner.bytes = outer.bytes = 0;
    put(&blob, array_bytes ? &array_bytes : &bytes, 4);
    put(&blob, m->unit, bytes);
    put(&blob, m->strings, m->strings_bytes);
    put_field(&inner, 2, blob.at, blob.bytes);
    put_field(&outer, spec, inner.at, inner.bytes);
    return try_model(&outer, err);
}

static map m;

static void good_maps_are_taken(void **state)
{
    (void)state;
    wd_err err;
    make_chain(&m, 32, 0);
    wd_test_ok(try_map(&m, 0, 3, &err), &err);
    make_chain(&m, 1, 0);
    wd_test_ok(try_map(&m, 0, 3, &err), &err);
    make_long_key(&m, 128);
    wd_test_ok(try_map(&m, 0, 3, &err), &err);
}

static void maps_that_lead_out_are_refused(void **state)
{
    (void)state;
    wd_err err;
    static const char out[] = "precompiled_charsmap leads out of itself";
    for (int spec = 3; spec <= 5; spec += 2) {
        make_chain(&m, 33, 0); /* more keys at one position than the library's array holds */
        wd_test_refused(try_map(&m, 0, spec, &err), &err, WD_BAD_FORMAT, out);
        make_long_key(&m, 129);
        wd_test_refused(try_map(&m, 0, spec, &err), &err, WD_BAD_FORMAT, out);
        make_chain(&m, 1, 2); /* a value beyond the strings */
        wd_test_refused(try_map(&m, 0, spec, &err), &err, WD_BAD_FORMAT, out);
        make_chain(&m, 1, INT32_MAX);
        wd_test_refused(try_map(&m, 0, spec, &err), &err, WD_BAD_FORMAT, out);
        make_chain(&m, 1, 0); /* a string without an end */
        m.strings_bytes = 1;
        wd_test_refused(try_map(&m, 0, spec, &err), &err, WD_BAD_FORMAT, out);
        make_chain(&m, 1, 0); /* the root, also where it looks like a value */
        *m.unit = UINT32_MAX;
        wd_test_refused(try_map(&m, 0, spec, &err), &err, WD_BAD_FORMAT, out);
        make_chain(&m, 1, 0); /* the unit of "a" */
        m.unit[PLACE ^ 'a'] = leads(PLACE ^ 'a', 60 * PLACE, 'a') | ENDS_KEY;
        wd_test_refused(try_map(&m, 0, spec, &err), &err, WD_BAD_FORMAT, out);
        make_chain(&m, 1, 0); /* keys without an end */
        m.unit[PLACE ^ 'a'] = leads(PLACE ^ 'a', PLACE, 'a');
        wd_test_refused(try_map(&m, 0, spec, &err), &err, WD_BAD_FORMAT, out);
        make_chain(&m, 1, 0); /* an array whose stated size leaves no strings */
        wd_test_refused(try_map(&m, m.places * PLACE * 4 + 2, spec, &err), &err, WD_BAD_FORMAT,
                        out);
        wd_test_refused(try_map(&m, UINT32_MAX - 3, spec, &err), &err, WD_BAD_FORMAT, out);
    }
}

/* ---- pieces and the rest ---- */

/* A piece of `bytes` letters, of a type. */
static wd_status try_piece(size_t bytes, uint8_t type, float score, wd_err *err)
{
    static text inner, outer;
    static char letters[1 << 20];
    const uint8_t score_head = 2 << 3 | 5, kind[2] = {3 << 3, type};
    inner.bytes = outer.bytes = 0;
    memset(letters, 'q', bytes);
    put_field(&inner, 1, letters, bytes);
    put(&inner, &score_head, 1);
    put(&inner, &score, sizeof score);
    put(&inner, kind, sizeof kind);
    put_field(&outer, 1, inner.at, inner.bytes);
    return try_model(&outer, err);
}

static void pieces_have_limits(void **state)
{
    (void)state;
    enum { NORMAL = 1, USER_DEFINED = 4 };
    wd_err err;
    wd_test_ok(try_piece(1024, NORMAL, -1, &err), &err);
    wd_test_ok(try_piece(64, USER_DEFINED, 0, &err), &err);
    wd_test_refused(try_piece(1025, NORMAL, -1, &err), &err, WD_BAD_FORMAT, "more than 1024 bytes");
    wd_test_refused(try_piece(500000, NORMAL, -1, &err), &err, WD_BAD_FORMAT,
                    "more than 1024 bytes");
    wd_test_refused(try_piece(65, USER_DEFINED, 0, &err), &err, WD_BAD_FORMAT, "64 bytes");
    wd_test_refused(try_piece(3, NORMAL, NAN, &err), &err, WD_BAD_FORMAT, "score");
}

/* A piece of these bytes, of the ordinary type. */
static wd_status try_bytes(const char *letters, size_t bytes, wd_err *err)
{
    static text inner, outer;
    inner.bytes = outer.bytes = 0;
    put_field(&inner, 1, letters, bytes);
    put_field(&outer, 1, inner.at, inner.bytes);
    return try_model(&outer, err);
}

/* `fields` unknown fields of no bytes: the library keeps each of them. */
static wd_status try_unknown(size_t fields, wd_err *err)
{
    static text outer;
    outer.bytes = 0;
    for (size_t i = 0; i < fields; i++) put_field(&outer, 15, "", 0);
    return try_model(&outer, err);
}

static void other_limits_hold(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(try_bytes("q1q2", 4, &err), &err);
    wd_test_refused(try_bytes("q1\0q2", 5, &err), &err, WD_BAD_FORMAT, "a byte that is 0");
    wd_test_ok(try_unknown(1000, &err), &err);
    wd_test_refused(try_unknown(UNKNOWN, &err), &err, WD_BAD_FORMAT,
                    "more than 1 MiB beside pieces");
}

static void what_is_no_field_is_refused(void **state)
{
    (void)state;
    static text more;
    static const uint8_t group[] = {2 << 3 | 3, 2 << 3 | 4};
    wd_err err;
    more.bytes = 0;
    put(&more, group, sizeof group);
    wd_test_refused(try_model(&more, &err), &err, WD_BAD_FORMAT, "spiece.model");
    more.bytes = 0;
    put(&more, "\x0a\xff\xff\xff\xff\x0f", 6); /* a length of 4 GiB */
    wd_test_refused(try_model(&more, &err), &err, WD_BAD_FORMAT, "cut off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_maps_are_taken),
        cmocka_unit_test(maps_that_lead_out_are_refused),
        cmocka_unit_test(pieces_have_limits),
        cmocka_unit_test(other_limits_hold),
        cmocka_unit_test(what_is_no_field_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
