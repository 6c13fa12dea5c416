/* Small copies of sheets: see report/sheet_copies.h.
 *
 * The sheets that are shown are every stride-th. The stride is doubled until their copies fit, and
 * is kept, so it only grows with a run: no sheet that was left out comes back, and none is copied
 * twice. */
#include "report/sheet_copies.h"

#include <unistd.h>

#include "io/picture/png_small.h"

/* The first sheet that is wanted, and the one after sheet `i`; files->count: there is none. The
 * last one always is; when the stride is large, it alone. */
static int64_t first_wanted(const wd_run_files *f, int64_t stride)
{
    return f->count && stride >= 2 * f->count ? f->count - 1 : 0;
}

static int64_t next_wanted(const wd_run_files *f, int64_t stride, int64_t i)
{
    if (i >= f->count - 1) return f->count;
    return i + stride < f->count - 1 ? i + stride : f->count - 1;
}

static int64_t count_wanted(const wd_run_files *f, int64_t stride)
{
    int64_t n = 0;
    for (int64_t i = first_wanted(f, stride); i < f->count; i = next_wanted(f, stride, i)) n++;
    return n;
}

static bool is_same(const wd_run_picture *a, const wd_run_picture *b)
{
    return a->inode == b->inode && a->changed_ns == b->changed_ns && a->bytes == b->bytes;
}

/* The number of the copy of an open sheet; -1: there is none. One of an older file of its name is
 * given up. */
static int find_copy(wd_sheet_copies *c, int64_t step, const wd_run_picture *sheet)
{
    for (int i = 0; i < WD_SHEET_COPIES_MAX; i++) {
        if (c->copy[i].step != step) continue;
        if (is_same(&c->copy[i].of, sheet)) return i;
        c->bytes -= c->copy[i].bytes;
        c->copy[i] = (wd_sheet_copy){.step = -1};
    }
    return -1;
}

/* Gives up the copies of sheets that are not wanted any more. */
static void give_up_others(wd_sheet_copies *c, const wd_run_files *f)
{
    for (int k = 0; k < WD_SHEET_COPIES_MAX; k++) {
        bool wanted = false;
        for (int64_t i = first_wanted(f, c->stride); i < f->count; i = next_wanted(f, c->stride, i))
            wanted |= f->sheet[i].step == c->copy[k].step;
        if (wanted || c->copy[k].step < 0) continue;
        c->bytes -= c->copy[k].bytes;
        c->copy[k] = (wd_sheet_copy){.step = -1};
    }
}

static int free_place(const wd_sheet_copies *c)
{
    int k = 0;
    while (c->copy[k].step >= 0) k++; /* as many as there are sheets at most are wanted */
    return k;
}

/* Makes the copy of an open sheet. */
static wd_status copy_sheet(wd_sheet_copies *c, wd_run_sheet *sheet, const wd_run_picture *picture,
                            wd_err *err)
{
    char name[64];
    wd_small_png small;
    wd_err why = {0};
    const int k = free_place(c);
    wd__run_sheet_name(name, sheet->step);
    const wd_status status =
        wd_png_shrink(&small, picture->fd, c->fd, wd__sheet_copy_offset(k), WD_SHEET_COPY_WIDTH,
                      WD_SHEET_COPY_PIXELS, WD_SHEET_COPY_BYTES, name, &why);
    sheet->is_bad = status == WD_BAD_FORMAT;
    if (sheet->is_bad) return WD_OK;
    if (status != WD_OK) return wd_fail(err, status, "%s", why.message);
    c->copy[k] = (wd_sheet_copy){.of = *picture,
                                 .step = sheet->step,
                                 .width = small.width,
                                 .height = small.height,
                                 .bytes = small.bytes};
    c->bytes += small.bytes;
    sheet->copy = k;
    return WD_OK;
}

static wd_status use_sheet(wd_sheet_copies *c, wd_run_files *f, int64_t i, wd_err *err)
{
    wd_run_picture picture;
    wd_run_sheet *sheet = &f->sheet[i];
    if (sheet->is_bad || sheet->copy >= 0) return WD_OK;
    sheet->is_bad = !wd__run_sheet_open(&picture, f, i);
    if (sheet->is_bad) return WD_OK;
    sheet->copy = find_copy(c, sheet->step, &picture);
    const wd_status status = sheet->copy < 0 ? copy_sheet(c, sheet, &picture, err) : WD_OK;
    close(picture.fd);
    return status;
}

/* Copies what is wanted as long as it fits. */
static wd_status use_wanted(wd_sheet_copies *c, wd_run_files *f, size_t bytes_max, wd_err *err)
{
    for (int64_t i = 0; i < f->count; i++) f->sheet[i].copy = -1;
    give_up_others(c, f);
    for (int64_t i = first_wanted(f, c->stride); i < f->count && c->bytes <= bytes_max;
         i = next_wanted(f, c->stride, i))
        WD_TRY(use_sheet(c, f, i, err));
    return WD_OK;
}

wd_status wd__sheet_copies_update(wd_sheet_copies *copies, wd_run_files *files, const char *page,
                                  size_t bytes_max, wd_err *err)
{
    wd_sheet_copies *c = copies;
    if (!files->count) return WD_OK;
    if (!c->stride) {
        WD_TRY(wd_file_scratch(&c->fd, page, err));
        for (int k = 0; k < WD_SHEET_COPIES_MAX; k++) c->copy[k].step = -1;
        c->stride = 1;
    }
    for (;; c->stride *= 2) {
        while (count_wanted(files, c->stride) > WD_SHEET_COPIES_MAX) c->stride *= 2;
        WD_TRY(use_wanted(c, files, bytes_max, err));
        if (c->bytes <= bytes_max) return WD_OK;
        if (c->stride >= 2 * files->count) break;
    }
    files->sheet[files->count - 1].copy = -1; /* it alone is too large */
    return WD_OK;
}

void wd__sheet_copies_close(wd_sheet_copies *copies)
{
    if (copies->stride) close(copies->fd);
    *copies = (wd_sheet_copies){0};
}
