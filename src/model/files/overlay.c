/* Making tensors of a transformer: see model/files/overlay.h.
 *
 * A tensor is made by pieces of some rows, so that memory does not grow with the model. */
#include "model/files/overlay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/progress.h"
#include "dev/codec/by_row.h"
#include "dev/codec/values.h"
#include "io/tensors/safetensors.h"
#include "model/files/lora.h"
#include "model/tables/dit_table.h"
#include "wandistiller_status.h"

enum { PIECE_VALUES = 1 << 20, GRAIN_VALUES = 1 << 15 };

/* The key of the metadata that says what a file was made of. */
static const char key_name[] = "wandistiller.merged";

/* How names of files begin. */
static const char merged_prefix[] = "merged-", quantised_prefix[] = "quantised-";

/* One tensor of the file, with the changes [first, first + count) by LoRAs. */
typedef struct made {
    const wd_safetensors_entry *from;
    wd_dtype dtype;
    int64_t first, count;
} made;

/* The making of one file. */
typedef struct job {
    const wd_safetensors *set;
    wd_loras *loras; /* NULL: none */
    made *tensor;    /* by the size of their elements, the largest first, so that all are aligned */
    int64_t tensors;
    char key[WD_LORA_KEY_MAX], path[WD_PATH_MAX]; /* path "": there is no folder */
    float *rows;                                  /* [a piece] */
    uint8_t *bytes;                               /* [a piece], of a tensor that is quantised */
    float *scales;                                /* [rows of such a tensor] */
    wd_lora_room room;
} job;

/* ---- what is to be made ---- */

bool wd_overlay_quantises(const wd_tensor_spec *spec, wd_dtype stored, wd_dtype quantised)
{
    return quantised != WD_F32 && wd_dit_is_matrix(spec) && !wd_dtype_is_quantised(stored);
}

/* A tensor that is kept as it is stored, and is stored quantised, is merged to BF16, unless it is
 * one that stays fp32. */
static wd_dtype merged_dtype(const wd_tensor_spec *spec, wd_dtype stored, wd_dtype asked)
{
    if (asked != WD_DTYPE_COUNT) return wd_spec_dtype(spec, asked);
    return wd_dtype_is_quantised(stored) ? wd_spec_dtype(spec, WD_BF16) : stored;
}

/* Lists a line's tensor, if it is made and its elements have `size` bytes. *change: the next of
 * the LoRAs' changes, which are in the order of lines. */
static wd_status list_tensor(job *j, const wd_tensor_table *table, int64_t line, size_t size,
                             int64_t *change, const wd_overlay *o, wd_err *err)
{
    const wd_loras *l = j->loras;
    const wd_tensor_spec *spec = &table->spec[line];
    made m = {.from = wd_safetensors_find(j->set, spec->name), .first = *change};
    while (l && *change < l->changes && l->change[*change].line == line) ++*change;
    m.count = *change - m.first;
    if (!m.from && m.count)
        return wd_fail(err, WD_MISMATCH,
                       "%s changes tensor \"%s\", which the transformer does not have",
                       l->file[l->change[m.first].file].path, spec->name);
    if (!m.from) return WD_OK;
    const wd_dtype stored = m.from->tensor.dtype;
    const wd_dtype merged = m.count ? merged_dtype(spec, stored, o->dtype) : stored;
    const bool quantises = wd_overlay_quantises(spec, merged, o->quantised);
    m.dtype = quantises ? o->quantised : merged;
    if ((m.count || quantises) && wd_dtype_bytes(m.dtype) == size) j->tensor[j->tensors++] = m;
    return WD_OK;
}

static wd_status list_tensors(job *j, const wd_tensor_table *table, const wd_overlay *o,
                              wd_err *err)
{
    void *block;
    WD_TRY(wd_alloc(&block, (size_t)table->count, sizeof *j->tensor, "a list of tensors", err));
    j->tensor = block;
    for (size_t size = sizeof(float); size; size /= 2)
        for (int64_t line = 0, change = 0; line < table->count; line++)
            WD_TRY(list_tensor(j, table, line, size, &change, o, err));
    return WD_OK;
}

static void close_job(job *j)
{
    wd__lora_room_close(&j->room);
    wd_free(j->rows);
    wd_free(j->bytes);
    wd_free(j->scales);
    wd_free(j->tensor);
    if (j->loras) wd__loras_close(j->loras);
    wd_free(j->loras);
}

static wd_status open_loras(job *j, const char *text, const wd_tensor_table *table, wd_err *err)
{
    void *block;
    if (!text) return WD_OK;
    WD_TRY(wd_alloc(&block, 1, sizeof *j->loras, "LoRAs", err));
    j->loras = block;
    return wd__loras_open(j->loras, text, table, err);
}

/* The file's name follows from everything that is in it. */
static wd_status open_job(job *j, const wd_safetensors *set, const char *loras,
                          const wd_tensor_table *table, const wd_overlay *o, wd_err *err)
{
    char name[64], quantised[32] = "", more[96];
    const bool quantises = o->quantised != WD_F32;
    *j = (job){.set = set};
    WD_TRY(open_loras(j, loras, table, err));
    WD_TRY(list_tensors(j, table, o, err));
    if (quantises) snprintf(quantised, sizeof quantised, "%s", wd_dtype_option_name(o->quantised));
    wd_safetensors_key(j->key, set, quantised);
    snprintf(more, sizeof more, "%s %s", j->key,
             o->dtype == WD_DTYPE_COUNT ? "" : wd_dtype_option_name(o->dtype));
    if (j->loras) wd__loras_key(j->key, j->loras, more);
    snprintf(name, sizeof name, "%s%s.safetensors", quantises ? quantised_prefix : merged_prefix,
             j->key);
    return o->folder ? wd_path_join(j->path, o->folder, name, err) : WD_OK;
}

/* ---- computing ---- */

static wd_status check_values(const job *j, const made *m, int64_t count, wd_err *err)
{
    /* the least value that is rounded to infinity */
    const float limit = m->dtype == WD_F16 ? 65520 : m->dtype == WD_BF16 ? 0x1.ffp127f : INFINITY;
    for (int64_t i = 0; i < count; i++) {
        const float f = j->rows[i];
        if (fabsf(f) < limit) continue;
        return wd_fail(
            err, WD_UNSUPPORTED,
            "tensor \"%s\"%s has the value %g, which %s cannot hold: %sa file is damaged",
            m->from->name, m->count ? " with its LoRAs" : "", (double)f,
            wd_dtype_option_name(m->dtype), m->count ? "a strength is too large, or " : "");
    }
    return WD_OK;
}

/* Puts `count` values of rows from `first` on. */
static wd_status put_rows(job *j, wd_safetensors_writer *writer, const made *m, int64_t first,
                          int64_t count, wd_err *err)
{
    uint16_t *narrow = (uint16_t *)(void *)j->rows; /* value i is read before i is written */
    WD_TRY(check_values(j, m, count, err));
    if (wd_dtype_is_quantised(m->dtype)) {
        const int64_t columns = m->from->tensor.dim[1];
        wd_quantise_rows(j->bytes, j->scales + first, j->rows, count / columns, columns, m->dtype);
        return wd_safetensors_put(writer, j->bytes, (size_t)count, err);
    }
    for (int64_t i = 0; m->dtype != WD_F32 && i < count; i++) {
        const float f = j->rows[i];
        const uint16_t half = m->dtype == WD_BF16 ? wd_f32_to_bf16(f) : wd_f32_to_f16(f);
        memcpy(narrow + i, &half, sizeof half);
    }
    return wd_safetensors_put(writer, j->rows, (size_t)count * wd_dtype_bytes(m->dtype), err);
}

/* The values of rows from `first` on, in pieces that threads share. */
typedef struct widening {
    float *to;
    const wd_tensor *tensor;
    int64_t first, columns;
} widening;

static void widen_rows(int64_t begin, int64_t end, void *context)
{
    const widening *w = context;
    wd_tensor_values(w->to + begin * w->columns, w->tensor, (w->first + begin) * w->columns,
                     (end - begin) * w->columns);
}

static wd_status put_tensor(job *j, wd_safetensors_writer *writer, const made *m, wd_err *err)
{
    const wd_tensor *t = &m->from->tensor;
    const int64_t rows = t->dim[0], columns = wd_tensor_count(t) / rows;
    const int64_t piece = columns > PIECE_VALUES ? 1 : PIECE_VALUES / columns;
    for (int64_t first = 0; first < rows; first += piece) {
        const int64_t count = rows - first < piece ? rows - first : piece;
        if (wd_stop_requested()) return wd_fail(err, WD_INTERRUPTED, "stopped on request");
        widening w = {j->rows, t, first, columns};
        wd_parallel_for(count, columns < GRAIN_VALUES ? GRAIN_VALUES / columns : 1, widen_rows, &w);
        for (int64_t i = 0; i < m->count; i++)
            WD_TRY(wd__lora_add(j->rows, &j->room, &j->loras->change[m->first + i], first, count,
                                columns, err));
        WD_TRY(put_rows(j, writer, m, first, count * columns, err));
    }
    wd_safetensors_dont_need(m->from);
    if (!wd_dtype_is_quantised(m->dtype)) return WD_OK;
    return wd_safetensors_put(writer, j->scales, (size_t)rows * sizeof *j->scales, err);
}

/* ---- the file ---- */

/* The items of a tensor at items[*n], and its scales' name at *name. */
static void add_items(wd_safetensors_item *items, int64_t *n, char (*name)[WD_TENSOR_NAME_MAX + 8],
                      const made *m)
{
    const wd_tensor *t = &m->from->tensor;
    wd_safetensors_item *item = &items[(*n)++];
    *item = (wd_safetensors_item){m->from->name, m->dtype, t->ndim, {0}};
    memcpy(item->dim, t->dim, sizeof item->dim);
    if (!wd_dtype_is_quantised(m->dtype)) return;
    snprintf(*name, sizeof *name, "%s_scale", m->from->name);
    items[(*n)++] = (wd_safetensors_item){*name, WD_F32, 2, {t->dim[0], 1}};
}

static wd_status create(wd_safetensors_writer **out, uint64_t *bytes, const job *j, wd_err *err)
{
    const char *const metadata[] = {key_name, j->key, NULL};
    char(*names)[WD_TENSOR_NAME_MAX + 8] = NULL;
    wd_safetensors_item *items = NULL;
    void *block;
    int64_t count = 0;
    wd_status status;
    WD_TRY_OUT(wd_alloc(&block, (size_t)j->tensors + 1, sizeof *names, "a header", err));
    names = block;
    WD_TRY_OUT(wd_alloc(&block, 2 * (size_t)j->tensors + 1, sizeof *items, "a header", err));
    items = block;
    for (int64_t i = 0; i < j->tensors; i++) add_items(items, &count, &names[i], &j->tensor[i]);
    for (int64_t i = 0; i < count; i++) {
        size_t values = 1;
        for (int k = 0; k < items[i].ndim; k++) values *= (size_t)items[i].dim[k];
        *bytes += values * wd_dtype_bytes(items[i].dtype);
    }
    status = wd_safetensors_create_unnamed(out, j->path, items, count, metadata, err);
out:
    wd_free(names);
    wd_free(items);
    return status;
}

/* Room for a piece of any tensor. */
static wd_status take_room(job *j, wd_err *err)
{
    int64_t most = PIECE_VALUES, rows = 1;
    void *block;
    for (int64_t i = 0; i < j->tensors; i++) {
        const wd_tensor *t = &j->tensor[i].from->tensor;
        const int64_t columns = wd_tensor_count(t) / t->dim[0];
        if (columns > most) most = columns;
        if (t->dim[0] > rows) rows = t->dim[0];
    }
    WD_TRY(wd_alloc(&block, (size_t)most, sizeof *j->rows, "changed weights", err));
    j->rows = block;
    WD_TRY(wd_alloc(&block, (size_t)most, sizeof *j->bytes, "changed weights", err));
    j->bytes = block;
    WD_TRY(wd_alloc(&block, (size_t)rows, sizeof *j->scales, "changed weights", err));
    j->scales = block;
    return WD_OK;
}

static wd_status write_file(uint64_t *bytes, job *j, const wd_overlay *o, wd_err *err)
{
    const char *what = o->quantised == WD_F32 ? "merging LoRAs" : "quantising weights";
    wd_safetensors_writer *writer = NULL;
    wd_status status;
    WD_TRY(wd_folder_make(o->folder, err));
    WD_TRY(take_room(j, err));
    WD_TRY_OUT(create(&writer, bytes, j, err));
    wd_progress_task progress = wd_progress_begin(what, "tensor", 0, j->tensors);
    for (int64_t i = 0; i < j->tensors; i++) {
        WD_TRY_OUT(put_tensor(j, writer, &j->tensor[i], err));
        wd_progress_at(&progress, i + 1);
    }
    if (wd_stop_requested()) { /* before gigabytes are flushed to the disk */
        status = wd_fail(err, WD_INTERRUPTED, "stopped on request");
        goto out;
    }
    bool is_first = false; /* else another process was faster, and may be reading its file */
    status = wd_safetensors_finish_first(&is_first, writer, err);
    if (!is_first) *bytes = 0;
    writer = NULL;
out:
    wd_safetensors_abandon(writer);
    return status;
}

wd_status wd_overlay_write(uint64_t *bytes, const wd_safetensors *set, const char *loras,
                           const wd_tensor_table *table, const wd_overlay *overlay, wd_err *err)
{
    job j;
    *bytes = 0;
    wd_status status = open_job(&j, set, loras, table, overlay, err);
    if (status == WD_OK && j.tensors) {
        wd_file_remove_abandoned(overlay->folder, merged_prefix);
        wd_file_remove_abandoned(overlay->folder, quantised_prefix);
        if (!wd_path_exists(j.path)) status = write_file(bytes, &j, overlay, err);
    }
    close_job(&j);
    return status;
}

/* ---- its use ---- */

uint64_t wd_overlay_bytes_to_write(const wd_safetensors *set)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        if (e->tensor.data) continue;
        bytes += wd_tensor_bytes(&e->tensor);
        if (e->scale) bytes += wd_tensor_bytes(&e->scale->tensor);
    }
    return bytes;
}

/* Whether the file has the job's tensors, and no others, in their dtypes and shapes. */
static bool is_of_job(const wd_safetensors *file, const job *j)
{
    const char *key = wd_safetensors_metadata(file, key_name);
    int64_t count = j->tensors;
    if (!key || strcmp(key, j->key)) return false;
    for (int64_t i = 0; i < j->tensors; i++) {
        const made *m = &j->tensor[i];
        const wd_tensor *t = &m->from->tensor;
        const wd_safetensors_entry *found = wd_safetensors_find(file, m->from->name);
        if (!found || found->tensor.dtype != m->dtype || found->tensor.ndim != t->ndim ||
            memcmp(found->tensor.dim, t->dim, (size_t)t->ndim * sizeof *t->dim))
            return false;
        count += wd_dtype_is_quantised(m->dtype);
    }
    return wd_safetensors_count(file) == count;
}

static wd_status overlay_file(wd_safetensors *set, const job *j, wd_err *err)
{
    wd_safetensors *file;
    wd_status status = wd_safetensors_open(&file, j->path, err);
    if (status == WD_OK) {
        const bool good = is_of_job(file, j);
        wd_safetensors_close(file);
        if (good) return wd_safetensors_overlay(set, j->path, err);
        status = wd_fail(err, WD_BAD_FORMAT, "%s: is not the file that its name says", j->path);
    }
    if (status != WD_OUT_OF_MEMORY)
        wd_fail_in(err, "weights that were merged or quantised cannot be read; remove the "
                        "file; the next run writes it again");
    return status;
}

static wd_status refuse_missing(const job *j, wd_err *err)
{
    return wd_fail(err, WD_NOT_FOUND,
                   "%s: weights that this run has merged or quantised are missing there; give "
                   "--cache_dir a folder that all processes of a machine see alike, and remove "
                   "nothing from it while they run",
                   j->path);
}

/* The changed tensors as they will be, without data. */
static wd_status expect_file(wd_safetensors *set, const job *j, wd_err *err)
{
    for (int64_t i = 0; i < j->tensors; i++) {
        const made *m = &j->tensor[i];
        WD_TRY(
            wd_safetensors_expect_overlay(set, m->from - wd_safetensors_at(set, 0), m->dtype, err));
    }
    return WD_OK;
}

wd_status wd_overlay_apply(wd_safetensors *set, const char *loras, const wd_tensor_table *table,
                           const wd_overlay *overlay, wd_err *err)
{
    job j;
    wd_status status = open_job(&j, set, loras, table, overlay, err);
    if (status == WD_OK && j.tensors) {
        if (*j.path && wd_path_exists(j.path))
            status = overlay_file(set, &j, err);
        else
            status = overlay->is_made ? refuse_missing(&j, err) : expect_file(set, &j, err);
    }
    close_job(&j);
    return status;
}
