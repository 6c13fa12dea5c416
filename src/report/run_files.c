/* The files of a run: see report/run_files.h. */
#include "report/run_files.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"

enum { CARD_BYTES = 64 << 10, SHEETS_MAX = 100000, PNG_HEAD = 24 };

/* ---- small files ---- */

/* Opens a file that is no link; -1: there is none. */
static int open_file(struct stat *is, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return -1;
    if (!fstat(fd, is) && S_ISREG(is->st_mode)) return fd;
    close(fd);
    return -1;
}

static bool is_file(const char *path)
{
    struct stat is;
    const int fd = open_file(&is, path);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* *out = an object that a file has; NULL: there is none. Only a lack of memory is an error. */
static wd_status load(json_t **out, const char *folder, const char *name, wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_err why;
    *out = NULL;
    if (wd_path_join(path, folder, name, NULL) != WD_OK || !is_file(path)) return WD_OK;
    const wd_status status = wd_json_load(out, path, &why);
    if (status == WD_OUT_OF_MEMORY) return wd_fail(err, status, "%s", why.message);
    if (status != WD_OK) *out = NULL;
    if (*out && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
    }
    return WD_OK;
}

static wd_status load_run(wd_run_files *f, wd_err *err)
{
    WD_TRY(load(&f->run, f->folder, "run.json", err));
    const char *command = json_string_value(json_object_get(f->run, "command"));
    if (f->run && command && !strcmp(command, "train")) return WD_OK;
    json_decref(f->run);
    f->run = NULL;
    return WD_OK;
}

/* What the card says from its heading about sampling on. */
static wd_status load_use(wd_run_files *f, wd_err *err)
{
    static const char heading[] = "\n## Sampling\n";
    char path[WD_PATH_MAX], *text;
    size_t bytes;
    if (wd_path_join(path, f->folder, "README.md", NULL) != WD_OK || !is_file(path)) return WD_OK;
    if (wd_file_read(&text, &bytes, path, CARD_BYTES, NULL) != WD_OK) return WD_OK;
    const char *found = strstr(text, heading);
    const wd_status status = found ? wd_copy_text(&f->use, found + sizeof heading - 1, err) : WD_OK;
    wd_free(text);
    return status;
}

/* ---- sheets ---- */

void wd__run_sheet_name(char out[64], int64_t step)
{
    snprintf(out, 64, "step-%08" PRId64 ".png", step);
}

/* "step-00000100.png" -> 100; -1: it is no sheet's name. */
static int64_t step_of(const char *name)
{
    char own[64];
    int64_t step = -1;
    if (sscanf(name, "step-%15" SCNd64, &step) != 1 || step < 0) return -1;
    wd__run_sheet_name(own, step);
    return strcmp(own, name) ? -1 : step;
}

static int is_sheet(const struct dirent *entry)
{
    return step_of(entry->d_name) >= 0;
}

static int by_step(const struct dirent **a, const struct dirent **b)
{
    const int64_t x = step_of((*a)->d_name), y = step_of((*b)->d_name);
    return (x > y) - (x < y);
}

/* The folder of sheets: beside the run, or else where its --sample_dir has put them. */
static wd_status find_sheets(wd_run_files *f, wd_err *err)
{
    const json_t *options = json_object_get(f->run, "options");
    const char *elsewhere = json_string_value(json_object_get(options, "sample_dir"));
    WD_TRY(wd_path_join(f->sheets, f->folder, "samples", err));
    if (!elsewhere || elsewhere[0] != '/' || wd_path_is_folder(f->sheets)) return WD_OK;
    return wd_path_join(f->sheets, "", elsewhere, err);
}

static bool open_sheet(wd_run_picture *out, const char *folder, const char *name)
{
    static const unsigned char begin[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n',
                                          0,    0,   0,   13,  'I',  'H',  'D',  'R'};
    unsigned char head[PNG_HEAD];
    char path[WD_PATH_MAX];
    struct stat is;
    if (wd_path_join(path, folder, name, NULL) != WD_OK) return false;
    out->fd = open_file(&is, path);
    if (out->fd < 0) return false;
    out->bytes = (size_t)is.st_size;
    out->inode = is.st_ino;
    out->changed_ns = (int64_t)is.st_mtim.tv_sec * 1000000000 + is.st_mtim.tv_nsec;
    if (pread(out->fd, head, PNG_HEAD, 0) != PNG_HEAD || memcmp(head, begin, sizeof begin)) {
        close(out->fd);
        return false;
    }
    out->width = (int64_t)head[16] << 24 | head[17] << 16 | head[18] << 8 | head[19];
    out->height = (int64_t)head[20] << 24 | head[21] << 16 | head[22] << 8 | head[23];
    return true;
}

static wd_status list_sheets(wd_run_files *f, wd_err *err)
{
    wd_folder_list list = {0};
    wd_status status = WD_OK;
    WD_TRY(find_sheets(f, err));
    if (wd_folder_list_open(&list, f->sheets, is_sheet, by_step, NULL) != WD_OK) return WD_OK;
    const int count = list.count < SHEETS_MAX ? list.count : SHEETS_MAX;
    if (count)
        status = wd_alloc((void **)&f->sheet, (size_t)count, sizeof *f->sheet, "sheets", err);
    for (int i = list.count - count; i < list.count && status == WD_OK; i++) {
        wd_run_picture picture;
        const char *name = list.entry[i]->d_name;
        if (!open_sheet(&picture, f->sheets, name)) continue;
        close(picture.fd);
        f->sheet[f->count++] = (wd_run_sheet){.step = step_of(name), .copy = -1};
    }
    wd_folder_list_close(&list);
    return status;
}

bool wd__run_sheet_open(wd_run_picture *out, const wd_run_files *files, int64_t i)
{
    char name[64];
    wd__run_sheet_name(name, files->sheet[i].step);
    return open_sheet(out, files->sheets, name);
}

bool wd__run_plan_open(wd_run_picture *out, const wd_run_files *files)
{
    char path[WD_PATH_MAX];
    struct stat is;
    *out = (wd_run_picture){.fd = -1};
    if (wd_path_join(path, files->folder, "plan.svg", NULL) != WD_OK) return false;
    out->fd = open_file(&is, path);
    if (out->fd >= 0) out->bytes = (size_t)is.st_size;
    if (out->fd >= 0 && out->bytes <= WD_PLAN_PICTURE_BYTES) return true;
    if (out->fd >= 0) close(out->fd);
    return false;
}

/* ---- all of them ---- */

static wd_status open_all(wd_run_files *f, wd_err *err)
{
    WD_TRY(load_run(f, err));
    WD_TRY(load(&f->eval, f->folder, "eval.json", err));
    if (!f->eval) WD_TRY(load(&f->eval, f->folder, "eval/eval.json", err));
    WD_TRY(load_use(f, err));
    return list_sheets(f, err);
}

wd_status wd__run_files_open(wd_run_files *out, const char *folder, wd_err *err)
{
    *out = (wd_run_files){.folder = folder};
    const wd_status status = open_all(out, err);
    if (status != WD_OK) wd__run_files_close(out);
    return status;
}

void wd__run_files_close(wd_run_files *files)
{
    json_decref(files->run);
    json_decref(files->eval);
    wd_free(files->sheet);
    wd_free(files->use);
    *files = (wd_run_files){0};
}
