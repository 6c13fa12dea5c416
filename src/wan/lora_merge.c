/* Merging LoRAs: see wan/lora_merge.h.
 *
 * A tensor is merged by pieces of some rows, so that memory does not grow with the model. The order
 * of a sum is fixed, by rank and then by file, so the bits are the same on every processor. */
#include "wan/lora_merge.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "wandistiller.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/progress.h"
#include "dev/codec/values.h"
#include "io/safetensors_key.h"
#include "wan/dit_table.h"

enum { PIECE_VALUES = 1 << 20, COLUMNS = 512 };

/* The key of the metadata that says what a merged file was made of. */
static const char key_name[] = "wandistiller.merged";

/* One tensor of the file: the changes [first, first + count) of the transformer's tensor. */
typedef struct merged {
    const wd_safetensors_entry *from;
    wd_dtype dtype;
    int64_t first, count;
} merged;

/* One merge. */
typedef struct job {
    const wd_safetensors *set;
    wd_loras *loras;
    merged *tensor; /* by dtype: F32 first, so that all are aligned */
    int64_t tensors;
    char key[WD_LORA_KEY_MAX], path[WD_PATH_MAX]; /* path "": there is no folder */
    float *rows, *up, *down, *sum; /* [a piece], the factors of a change, [COLUMNS] */
} job;

/* ---- what is to be merged ---- */

static bool is_wide(const merged *m)
{
    return m->dtype == WD_F32;
}

/* A tensor that is kept as it is stored, and is stored quantised, is merged to BF16, unless it is
 * one that stays fp32. */
static wd_dtype dtype_of(const wd_tensor_spec *spec, wd_dtype stored, wd_dtype asked)
{
    if (asked != WD_DTYPE_COUNT) return wd_spec_dtype(spec, asked);
    const bool is_float = stored == WD_F32 || stored == WD_F16 || stored == WD_BF16;
    return is_float ? stored : wd_spec_dtype(spec, WD_BF16);
}

static wd_status list_tensors(job *j, const wd_tensor_table *table, wd_dtype dtype, wd_err *err)
{
    const wd_loras *l = j->loras;
    void *block;
    WD_TRY(wd_alloc(&block, (size_t)l->changes, sizeof *j->tensor, "merged tensors", err));
    j->tensor = block;
    for (int wide = 1; wide >= 0; wide--)
        for (int64_t i = 0, n; i < l->changes; i += n) {
            const wd_tensor_spec *spec = &table->spec[l->change[i].line];
            merged m = {.from = wd_safetensors_find(j->set, spec->name), .first = i};
            for (n = 1; i + n < l->changes && l->change[i + n].line == l->change[i].line;) n++;
            if (!m.from)
                return wd_fail(err, WD_MISMATCH,
                               "%s changes tensor \"%s\", which the transformer does not have",
                               l->file[l->change[i].file].path, spec->name);
            m.count = n;
            m.dtype = dtype_of(spec, m.from->tensor.dtype, dtype);
            if (is_wide(&m) == wide) j->tensor[j->tensors++] = m;
        }
    return WD_OK;
}

static void close_job(job *j)
{
    wd_free(j->rows);
    wd_free(j->up);
    wd_free(j->down);
    wd_free(j->sum);
    wd_free(j->tensor);
    if (j->loras) wd_loras_close(j->loras);
    wd_free(j->loras);
}

static wd_status open_loras(job *j, const char *text, const wd_tensor_table *table, wd_err *err)
{
    wd_loras *l;
    WD_TRY(wd_alloc((void **)&l, 1, sizeof *l, "LoRAs", err));
    j->loras = l;
    return wd_loras_open(l, text, table, err);
}

/* The file's name follows from everything that is merged. */
static wd_status open_job(job *j, const wd_safetensors *set, const char *loras,
                          const wd_tensor_table *table, const wd_lora_place *place, wd_err *err)
{
    char name[64], more[64];
    *j = (job){.set = set};
    WD_TRY(open_loras(j, loras, table, err));
    WD_TRY(list_tensors(j, table, place->dtype, err));
    wd_safetensors_key(j->key, set, "");
    snprintf(more, sizeof more, "%s %s", j->key,
             place->dtype == WD_DTYPE_COUNT ? "" : wd_dtype_option_name(place->dtype));
    wd_loras_key(j->key, j->loras, more);
    snprintf(name, sizeof name, "merged-%s.safetensors", j->key);
    return place->folder ? wd_path_join(j->path, place->folder, name, err) : WD_OK;
}

/* ---- computing ---- */

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

/* Adds one change to the rows of a piece. */
static wd_status add_change(job *j, const wd_lora_change *c, int64_t first, int64_t count,
                            int64_t columns, wd_err *err)
{
    if (c->diff) {
        WD_TRY(widen(&j->up, c->diff, first * columns, count * columns, err));
        for (int64_t i = 0; i < count * columns; i++) j->rows[i] += c->scale * j->up[i];
        return WD_OK;
    }
    WD_TRY(widen(&j->up, c->up, first * c->rank, count * c->rank, err));
    WD_TRY(widen(&j->down, c->down, 0, c->rank * columns, err));
    add_product(j->rows, j->sum, j->up, j->down, c->rank, count, columns, c->scale);
    return WD_OK;
}

static wd_status put_rows(const job *j, wd_safetensors_writer *writer, const merged *m,
                          int64_t count, wd_err *err)
{
    uint16_t *narrow = (uint16_t *)(void *)j->rows; /* value i is read before i is written */
    /* the least value that is rounded to infinity */
    const float limit = m->dtype == WD_F16 ? 65520 : m->dtype == WD_BF16 ? 0x1.ffp127f : INFINITY;
    for (int64_t i = 0; i < count; i++) {
        const float f = j->rows[i];
        if (isnan(f) || fabsf(f) >= limit)
            return wd_fail(err, WD_UNSUPPORTED,
                           "tensor \"%s\" with its LoRAs has the value %g, which %s cannot hold: a "
                           "strength is too large, or a file damaged",
                           m->from->name, (double)f, wd_dtype_option_name(m->dtype));
        if (m->dtype == WD_F32) continue;
        const uint16_t half = m->dtype == WD_BF16 ? wd_f32_to_bf16(f) : wd_f32_to_f16(f);
        memcpy(narrow + i, &half, sizeof half);
    }
    return wd_safetensors_put(writer, j->rows, (size_t)count * wd_dtype_bytes(m->dtype), err);
}

static wd_status put_tensor(job *j, wd_safetensors_writer *writer, const merged *m, wd_err *err)
{
    const wd_tensor *t = &m->from->tensor;
    const int64_t rows = t->dim[0], columns = wd_tensor_count(t) / rows;
    const int64_t piece = columns > PIECE_VALUES ? 1 : PIECE_VALUES / columns;
    for (int64_t first = 0; first < rows; first += piece) {
        const int64_t count = rows - first < piece ? rows - first : piece;
        if (wd_stop_requested()) return wd_fail(err, WD_INTERRUPTED, "stopped on request");
        wd_tensor_values(j->rows, t, first * columns, count * columns);
        for (int64_t i = 0; i < m->count; i++)
            WD_TRY(add_change(j, &j->loras->change[m->first + i], first, count, columns, err));
        WD_TRY(put_rows(j, writer, m, count * columns, err));
    }
    wd_safetensors_dont_need(m->from);
    return WD_OK;
}

/* ---- the file ---- */

static wd_status create(wd_safetensors_writer **out, uint64_t *bytes, const job *j, wd_err *err)
{
    const char *const metadata[] = {key_name, j->key, NULL};
    void *block;
    WD_TRY(wd_alloc(&block, (size_t)j->tensors, sizeof(wd_safetensors_item), "a header", err));
    wd_safetensors_item *items = block;
    for (int64_t i = 0; i < j->tensors; i++) {
        const wd_tensor *t = &j->tensor[i].from->tensor;
        items[i] = (wd_safetensors_item){j->tensor[i].from->name, j->tensor[i].dtype, t->ndim, {0}};
        memcpy(items[i].dim, t->dim, sizeof items[i].dim);
        *bytes += (uint64_t)wd_tensor_count(t) * wd_dtype_bytes(j->tensor[i].dtype);
    }
    const wd_status status = wd_safetensors_create(out, j->path, items, j->tensors, metadata, err);
    wd_free(block);
    return status;
}

static wd_status write_file(uint64_t *bytes, job *j, wd_err *err)
{
    int64_t most = PIECE_VALUES;
    wd_safetensors_writer *writer = NULL;
    wd_status status;
    for (int64_t i = 0; i < j->tensors; i++) {
        const wd_tensor *t = &j->tensor[i].from->tensor;
        const int64_t columns = wd_tensor_count(t) / t->dim[0];
        if (columns > most) most = columns;
    }
    WD_TRY_OUT(wd_alloc((void **)&j->rows, (size_t)most, sizeof *j->rows, "merged weights", err));
    WD_TRY_OUT(wd_alloc((void **)&j->sum, COLUMNS, sizeof *j->sum, "merged weights", err));
    WD_TRY_OUT(create(&writer, bytes, j, err));
    wd_progress_part progress = wd_progress_begin("merging LoRAs", "tensor", 0, j->tensors);
    for (int64_t i = 0; i < j->tensors; i++) {
        WD_TRY_OUT(put_tensor(j, writer, &j->tensor[i], err));
        wd_progress_at(&progress, i + 1);
    }
    status = wd_safetensors_finish(writer, err);
    writer = NULL;
out:
    wd_safetensors_abandon(writer);
    return status;
}

wd_status wd_lora_merge(uint64_t *bytes, const wd_safetensors *set, const char *loras,
                        const wd_tensor_table *table, const wd_lora_place *place, wd_err *err)
{
    job j;
    *bytes = 0;
    wd_status status = open_job(&j, set, loras, table, place, err);
    if (status == WD_OK && !wd_path_exists(j.path)) {
        status = wd_folder_make(place->folder, err);
        if (status == WD_OK) status = write_file(bytes, &j, err);
    }
    close_job(&j);
    return status;
}

static wd_status overlay_file(wd_safetensors *set, const job *j, wd_err *err)
{
    wd_safetensors *file;
    WD_TRY(wd_safetensors_open(&file, j->path, err));
    const char *key = wd_safetensors_metadata(file, key_name);
    const bool good = key && !strcmp(key, j->key) && wd_safetensors_count(file) == j->tensors;
    wd_safetensors_close(file);
    if (good) return wd_safetensors_overlay(set, j->path, err);
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: is not the file of merged weights that its name says; remove it", j->path);
}

wd_status wd_lora_overlay(wd_safetensors *set, const char *loras, const wd_tensor_table *table,
                          const wd_lora_place *place, wd_err *err)
{
    job j;
    wd_status status = open_job(&j, set, loras, table, place, err);
    if (status == WD_OK && *j.path && wd_path_exists(j.path))
        status = overlay_file(set, &j, err);
    else
        for (int64_t i = 0; status == WD_OK && i < j.tensors; i++)
            wd_safetensors_expect_overlay(set, j.tensor[i].from - wd_safetensors_at(set, 0),
                                          j.tensor[i].dtype);
    close_job(&j);
    return status;
}

wd_status wd_lora_key(char out[WD_LORA_KEY_MAX], const char *loras, const wd_tensor_table *table,
                      const char *more, wd_err *err)
{
    job j = {0};
    const wd_status status = open_loras(&j, loras, table, err);
    if (status == WD_OK) wd_loras_key(out, j.loras, more);
    close_job(&j);
    return status;
}
