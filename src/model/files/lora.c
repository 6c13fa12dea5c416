/* LoRAs: see model/files/lora.h. */
#include "model/files/lora.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "dev/codec/values.h"
#include "io/tensors/safetensors.h"
#include "model/files/lora_name.h"
#include "model/files/lora_scale.h"

enum { RANK_ALWAYS = 1024 };

_Static_assert((int)WD_LORA_KEY_MAX == WD_SAFETENSORS_KEY_MAX, "a key of one set");

/* What one file has for one module. */
typedef struct parts {
    const wd_safetensors_entry *entry[WD_LORA_PARTS];
    const wd_lora_module *module; /* as A names it */
    int64_t bias;                 /* line; -1: none */
} parts;

/* One file while it is read. */
typedef struct reading {
    wd_loras *loras;
    int file;
    const wd_tensor_table *table;
    const wd_lora_modules *modules;
    parts *parts; /* [table->count], by the line of the module's weight */
    wd_lora_scales scales;
} reading;

/* ---- the option ---- */

static wd_status refuse_text(const char *text, const char *found, wd_err *err)
{
    return wd_fail(
        err, WD_INVALID_ARGUMENT,
        "a list of LoRAs: expected FILE or FILE:STRENGTH, at most %d of them with commas "
        "between them, found %s in \"%s\"",
        WD_LORAS_MAX, found, text);
}

/* Takes ":0.8" off the end of the path; what is no number stays a part of it. */
static double take_strength(char *path)
{
    char *colon = strrchr(path, ':'), *end;
    if (!colon || !colon[1] || isspace((unsigned char)colon[1])) return 1;
    const double strength = strtod(colon + 1, &end);
    if (*end) return 1;
    *colon = '\0';
    return strength;
}

/* Whether the comma before `next` was meant as that of a number, as in "file:0,8": digits before it
 * and behind it, which are no file's name. */
static bool is_decimal_comma(const char *text, const char *next)
{
    char digits[32];
    const size_t count = strspn(next, "0123456789");
    if (next == text || !count || count >= sizeof digits || !strchr(",", next[count])) return false;
    const char *before = next - 1;
    while (before > text && isdigit((unsigned char)before[-1])) before--;
    if (before > text && strchr("-+", before[-1])) before--;
    snprintf(digits, sizeof digits, "%.*s", (int)count, next);
    return before > text && before[-1] == ':' && !wd_path_exists(digits);
}

static wd_status parse(wd_loras *l, const char *text, wd_err *err)
{
    const char *next = text;
    do {
        const size_t length = strcspn(next, ",");
        if (l->count == WD_LORAS_MAX) return refuse_text(text, "more", err);
        if (is_decimal_comma(text, next))
            return refuse_text(text, "a number with a comma (a strength has a point, as in 0.8)",
                               err);
        wd_lora_file *f = &l->file[l->count];
        if (length >= sizeof f->path) return refuse_text(text, "a longer path", err);
        memcpy(f->path, next, length);
        f->path[length] = '\0';
        f->strength = take_strength(f->path);
        if (!*f->path) return refuse_text(text, "an empty path", err);
        if (!isfinite((float)f->strength)) return refuse_text(text, "no finite strength", err);
        l->count++;
        next += length;
    } while (*next++ == ',');
    return WD_OK;
}

/* ---- one file ---- */

static wd_status wrong_shape(const wd_safetensors_entry *e, const char *expected, wd_err *err)
{
    char found[128];
    return wd_fail(err, WD_MISMATCH, "%s: tensor \"%s\": expected shape %s, found %s", e->file,
                   e->name, expected,
                   wd_dims_text(found, sizeof found, e->tensor.dim, e->tensor.ndim));
}

static wd_status collect(reading *r, const wd_safetensors_entry *e, wd_err *err)
{
    const wd_lora_module *module;
    wd_lora_part part;
    WD_TRY(wd__lora_resolve(&module, &part, r->modules, e->name, e->file, err));
    parts *p = &r->parts[module->weight];
    const wd_safetensors_entry *before = p->entry[part];
    if (before)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: tensors \"%s\" and \"%s\" are the same part of module \"%s\": expected "
                       "one of them",
                       e->file, before->name, e->name, module->name);
    const wd_dtype dtype = e->tensor.dtype;
    if (dtype != WD_F32 && dtype != WD_F16 && dtype != WD_BF16)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: tensor \"%s\": expected dtype F32, F16 or BF16, found %s", e->file,
                       e->name, wd_dtype_file_name(dtype));
    p->entry[part] = e;
    p->bias = module->bias;
    if (part == WD_LORA_DOWN) p->module = module;
    return WD_OK;
}

static void add(reading *r, wd_lora_change change)
{
    change.file = r->file;
    r->loras->change[r->loras->changes++] = change;
}

/* The change of a tensor by a tensor of its shape. */
static wd_status add_diff(reading *r, const wd_safetensors_entry *e, int64_t line, wd_err *err)
{
    const wd_tensor_spec *spec = line < 0 ? NULL : &r->table->spec[line];
    char expected[128];
    if (!spec)
        return wd_fail(err, WD_MISMATCH, "%s: tensor \"%s\": the module has no bias to change",
                       e->file, e->name);
    if (e->tensor.ndim != spec->ndim ||
        memcmp(e->tensor.dim, spec->dim, (size_t)spec->ndim * sizeof *spec->dim))
        return wrong_shape(e, wd_dims_text(expected, sizeof expected, spec->dim, spec->ndim), err);
    add(r, (wd_lora_change){
               .line = line, .diff = &e->tensor, .scale = (float)r->loras->file[r->file].strength});
    return WD_OK;
}

static wd_status read_alpha(double *out, const wd_safetensors_entry *e, wd_err *err)
{
    float alpha;
    if (wd_tensor_count(&e->tensor) != 1) return wrong_shape(e, "[]", err);
    wd_tensor_values(&alpha, &e->tensor, 0, 1);
    *out = (double)alpha;
    if (isfinite(alpha)) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT, "%s: tensor \"%s\": expected a finite number, found %g",
                   e->file, e->name, *out);
}

/* Checks A [rank, columns...] or B [rows, rank, 1...] against the dimensions that it must have. The
 * factors of a convolution have its dimensions, or are matrices. */
static wd_status check_factor(const wd_safetensors_entry *e, int64_t first, int64_t second,
                              const int64_t *rest, int dims, wd_err *err)
{
    const wd_tensor *t = &e->tensor;
    int64_t matrix[2] = {first, second}, full[WD_DIMS_MAX] = {first};
    char expected[128];
    for (int i = 1; i < dims; i++) full[i] = rest ? rest[i] : 1;
    if (!rest) full[1] = second;
    const bool flat = t->ndim == 2 && !memcmp(t->dim, matrix, sizeof matrix);
    const bool whole = t->ndim == dims && !memcmp(t->dim, full, (size_t)dims * sizeof *full);
    if (flat || whole) return WD_OK;
    return wrong_shape(e, wd_dims_text(expected, sizeof expected, full, dims), err);
}

/* A file that is sparse on disk may claim any rank. One beyond the sides of the matrix adds nothing
 * that a lower one could not; small matrices, such as the head of 64 rows, get the rank of all. */
static wd_status check_rank(const wd_safetensors_entry *e, int64_t rank, int64_t rows,
                            int64_t columns, wd_err *err)
{
    const int64_t side = rows < columns ? rows : columns;
    const int64_t most = side < RANK_ALWAYS ? RANK_ALWAYS : side;
    if (rank <= most) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "%s: tensor \"%s\" has rank %" PRId64 ", expected at most %" PRId64
                   " for a matrix of %" PRId64 " x %" PRId64,
                   e->file, e->name, rank, most, rows, columns);
}

static wd_status read_product(reading *r, const parts *p, int64_t line, wd_err *err)
{
    const wd_tensor_spec *spec = &r->table->spec[line];
    const wd_safetensors_entry *down = p->entry[WD_LORA_DOWN], *up = p->entry[WD_LORA_UP];
    const wd_safetensors_entry *alpha = p->entry[WD_LORA_ALPHA];
    if (!down || !up)
        return wd_fail(err, WD_NOT_FOUND,
                       "%s: tensor \"%s\" has no counterpart: expected A (lora_down) and B "
                       "(lora_up) of every module",
                       r->loras->file[r->file].path,
                       (down ? down
                        : up ? up
                             : alpha)
                           ->name);
    const int64_t rank = down->tensor.ndim ? down->tensor.dim[0] : 0;
    int64_t columns = 1;
    for (int i = 1; i < spec->ndim; i++) columns *= spec->dim[i];
    if (rank < 1 || spec->ndim < 2) return wrong_shape(down, "[rank, columns] of a matrix", err);
    WD_TRY(check_rank(down, rank, spec->dim[0], columns, err));
    WD_TRY(check_factor(down, rank, columns, spec->dim, spec->ndim, err));
    WD_TRY(check_factor(up, spec->dim[0], rank, NULL, spec->ndim, err));
    double scale = 1, value = 0;
    if (alpha) WD_TRY(read_alpha(&value, alpha, err));
    WD_TRY(wd__lora_scale(&scale, &r->scales, p->module->name, rank, alpha, value, err));
    scale *= r->loras->file[r->file].strength;
    add(r, (wd_lora_change){.line = line,
                            .up = &up->tensor,
                            .down = &down->tensor,
                            .rank = rank,
                            .scale = (float)scale});
    return WD_OK;
}

static wd_status read_changes(reading *r, wd_err *err)
{
    const wd_safetensors *set = r->loras->file[r->file].set;
    memset(r->parts, 0, (size_t)r->table->count * sizeof *r->parts);
    if (!wd_safetensors_count(set))
        return wd_fail(err, WD_UNSUPPORTED, "%s: has no tensors; expected those of a LoRA",
                       r->loras->file[r->file].path);
    for (int64_t i = 0; i < wd_safetensors_count(set); i++)
        WD_TRY(collect(r, wd_safetensors_at(set, i), err));
    for (int64_t i = 0; i < r->table->count; i++) {
        const parts *p = &r->parts[i];
        const wd_safetensors_entry *const *e = p->entry;
        if (e[WD_LORA_DOWN] || e[WD_LORA_UP] || e[WD_LORA_ALPHA])
            WD_TRY(read_product(r, p, i, err));
        if (e[WD_LORA_DIFF]) WD_TRY(add_diff(r, e[WD_LORA_DIFF], i, err));
        if (e[WD_LORA_DIFF_B]) WD_TRY(add_diff(r, e[WD_LORA_DIFF_B], p->bias, err));
    }
    return wd__lora_scales_check_used(&r->scales, err);
}

/* A hash of the factors that tensors do not say, for wd__loras_key; 0: the tensors say all. */
static uint64_t scales_hash(const reading *r, int64_t first)
{
    uint64_t hash = 0;
    if (!r->scales.count) return 0;
    for (int64_t i = first; i < r->loras->changes; i++) {
        const wd_lora_change *c = &r->loras->change[i];
        uint32_t bits;
        memcpy(&bits, &c->scale, sizeof bits);
        hash = (hash ^ bits ^ (uint64_t)c->line << 32) * UINT64_C(0x100000001b3) + 1;
    }
    return hash;
}

static wd_status read_file(reading *r, wd_err *err)
{
    wd_lora_file *f = &r->loras->file[r->file];
    const int64_t first = r->loras->changes;
    WD_TRY(wd__lora_scales_open(&r->scales, f->set, f->path, err));
    const wd_status status = read_changes(r, err);
    f->scales_hash = scales_hash(r, first);
    wd__lora_scales_close(&r->scales);
    return status;
}

/* ---- all files ---- */

static int by_line(const void *a, const void *b)
{
    const wd_lora_change *x = a, *y = b;
    if (x->line != y->line) return x->line < y->line ? -1 : 1;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->diff != NULL) - (y->diff != NULL);
}

static wd_status open_files(wd_loras *l, const wd_tensor_table *table, wd_err *err)
{
    wd_lora_modules modules = {0};
    void *block = NULL;
    int64_t tensors = 0;
    wd_status status;
    for (int i = 0; i < l->count; i++) {
        WD_TRY(wd_safetensors_open(&l->file[i].set, l->file[i].path, err));
        tensors += wd_safetensors_count(l->file[i].set);
    }
    WD_TRY_OUT(
        wd_alloc((void **)&l->change, (size_t)tensors, sizeof *l->change, "changes of LoRAs", err));
    WD_TRY_OUT(wd_alloc(&block, (size_t)table->count, sizeof(parts), "parts of a LoRA", err));
    WD_TRY_OUT(wd__lora_modules_open(&modules, table, err));
    reading r = {.loras = l, .table = table, .modules = &modules, .parts = block};
    for (r.file = 0; r.file < l->count; r.file++) WD_TRY_OUT(read_file(&r, err));
    qsort(l->change, (size_t)l->changes, sizeof *l->change, by_line);
out:
    wd__lora_modules_close(&modules);
    wd_free(block);
    return status;
}

wd_status wd__loras_open(wd_loras *out, const char *text, const wd_tensor_table *table, wd_err *err)
{
    *out = (wd_loras){0};
    wd_status status = parse(out, text, err);
    if (status == WD_OK) status = open_files(out, table, err);
    if (status != WD_OK) wd__loras_close(out);
    return status;
}

void wd__loras_close(wd_loras *loras)
{
    for (int i = 0; i < loras->count; i++) wd_safetensors_close(loras->file[i].set);
    wd_free(loras->change);
    *loras = (wd_loras){0};
}

void wd__loras_key(char out[WD_LORA_KEY_MAX], const wd_loras *l, const char *more)
{
    char text[2 * WD_LORA_KEY_MAX + 64], scales[32] = "";
    for (int i = 0; i < l->count; i++) {
        const uint64_t hash = l->file[i].scales_hash;
        if (hash) snprintf(scales, sizeof scales, " scales %" PRIx64, hash);
        snprintf(text, sizeof text, "%s %.17g%s", i ? out : more, l->file[i].strength,
                 hash ? scales : "");
        wd_safetensors_key(out, l->file[i].set, text);
    }
}

wd_status wd__lora_key(char out[WD_LORA_KEY_MAX], const char *text, const wd_tensor_table *table,
                       const char *more, wd_err *err)
{
    void *block;
    WD_TRY(wd_alloc(&block, 1, sizeof(wd_loras), "LoRAs", err));
    wd_loras *l = block;
    const wd_status status = wd__loras_open(l, text, table, err);
    if (status == WD_OK) wd__loras_key(out, l, more);
    wd__loras_close(l);
    wd_free(l);
    return status;
}

/* ---- adding a change to rows of a tensor ---- */

enum { COLUMNS = 512 };

/* rows [count, columns] += scale B A, of B [count, rank] = up and A [rank, columns] = down. */
static void add_product(float *rows, float *sum, const float *up, const float *down, int64_t rank,
                        int64_t count, int64_t columns, float scale)
{
    for (int64_t at = 0; at < columns; at += COLUMNS) {
        const int64_t n = columns - at < COLUMNS ? columns - at : COLUMNS;
        for (int64_t i = 0; i < count; i++) {
            float *row = rows + i * columns + at;
            for (int64_t c = 0; c < n; c++) sum[c] = 0;
            for (int64_t r = 0; r < rank; r++) {
                const float b = up[i * rank + r], *a = down + r * columns + at;
                for (int64_t c = 0; c < n; c++) sum[c] += b * a[c];
            }
            for (int64_t c = 0; c < n; c++) row[c] += scale * sum[c];
        }
    }
}

/* *out, which grows, = values [at, at + count) of the tensor. */
static wd_status widen(float **out, const wd_tensor *t, int64_t at, int64_t count, wd_err *err)
{
    void *block = *out;
    WD_TRY(wd_resize(&block, (size_t)count, sizeof **out, "factors of a LoRA", err));
    *out = block;
    wd_tensor_values(*out, t, at, count);
    return WD_OK;
}

wd_status wd__lora_add(float *rows, wd_lora_room *room, const wd_lora_change *c, int64_t first,
                       int64_t count, int64_t columns, wd_err *err)
{
    void *block = room->sum;
    if (!block) WD_TRY(wd_alloc(&block, COLUMNS, sizeof *room->sum, "factors of a LoRA", err));
    room->sum = block;
    if (c->diff) {
        WD_TRY(widen(&room->up, c->diff, first * columns, count * columns, err));
        for (int64_t i = 0; i < count * columns; i++) rows[i] += c->scale * room->up[i];
        return WD_OK;
    }
    WD_TRY(widen(&room->up, c->up, first * c->rank, count * c->rank, err));
    WD_TRY(widen(&room->down, c->down, 0, c->rank * columns, err));
    add_product(rows, room->sum, room->up, room->down, c->rank, count, columns, c->scale);
    return WD_OK;
}

void wd__lora_room_close(wd_lora_room *room)
{
    wd_free(room->up);
    wd_free(room->down);
    wd_free(room->sum);
    *room = (wd_lora_room){0};
}
