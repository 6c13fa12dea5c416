/* Writing a safetensors file as a stream: see io/tensors/safetensors.h.
 *
 * The header is known before the first byte of data, so data is written to the temporary file at
 * once, small pieces by way of a buffer. Disk space is reserved first, so that a full disk is
 * reported at the start. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "core/checked.h"
#include "core/file_space.h"
#include "core/memory.h"
#include "io/file/file.h"
#include "io/json/json.h"
#include "io/tensors/safetensors_impl.h"

enum { LENGTH_BYTES = 8, DATA_ALIGN = 64 };

struct wd_safetensors_writer {
    char path[WD_PATH_MAX], temporary[WD_PATH_MAX]; /* "": it has no name */
    int fd;
    uint64_t bytes, bytes_expected; /* of the data section: so far, and in total */
    char *buffer;
    size_t buffered;
};

static wd_status refuse(const wd_safetensors_writer *w, wd_err *err)
{
    wd_file_space_note(errno);
    const char *hint =
        errno == ENOSPC || errno == EDQUOT ? "; free some space or choose another folder" : "";
    return wd_fail(err, WD_IO, "%s: cannot be written (%" PRIu64 " bytes of data): %s%s", w->path,
                   w->bytes_expected, strerror(errno), hint);
}

static wd_status write_all(wd_safetensors_writer *w, const char *data, size_t bytes, wd_err *err)
{
    while (bytes) {
        ssize_t n = write(w->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return refuse(w, err);
        data += n;
        bytes -= (size_t)n;
    }
    return WD_OK;
}

/* Adds an entry to the header; *end is moved to the end of its data. */
static wd_status add_item(json_t *header, uint64_t *end, const wd_safetensors_item *item,
                          const char *path, wd_err *err)
{
    size_t count = 1, bytes;
    uint64_t begin = *end;
    json_t *shape = json_array();
    bool fits = item->ndim >= 0 && item->ndim <= WD_DIMS_MAX;
    for (int i = 0; fits && i < item->ndim; i++) {
        fits = item->dim[i] >= 0 && wd_mul_size(&count, count, (size_t)item->dim[i]);
        if (fits) json_array_append_new(shape, json_integer(item->dim[i]));
    }
    fits = fits && wd_mul_size(&bytes, count, wd_dtype_bytes(item->dtype)) &&
           !__builtin_add_overflow(begin, bytes, end) && *end <= INT64_MAX;
    if (!fits || json_object_get(header, item->name)) {
        json_decref(shape);
        return wd_fail(err, WD_INTERNAL, "%s: tensor \"%s\" %s", path, item->name,
                       fits ? "is listed twice" : "has an impossible shape");
    }
    /* jansson steals `shape`, also where it fails */
    json_t *line = json_pack("{ss so s[II]}", "dtype", wd_dtype_file_name(item->dtype), "shape",
                             shape, "data_offsets", (json_int_t)begin, (json_int_t)*end);
    if (line && json_object_set_new(header, item->name, line) == 0) return WD_OK;
    return wd_fail(err, WD_OUT_OF_MEMORY,
                   "%s: tensor \"%s\": no memory for the header, or its name "
                   "is not UTF-8",
                   path, item->name);
}

/* The header's text, padded with spaces so that data begins on a DATA_ALIGN boundary. */
static wd_status make_header(char **out, size_t *length, uint64_t *data_bytes, const char *path,
                             const wd_safetensors_item *items, int64_t count,
                             const char *const *metadata, wd_err *err)
{
    wd_status status = WD_OK;
    void *padded;
    char *text = NULL;
    wd_json_watch_memory();
    json_t *header = json_object(), *pairs = json_object();
    for (; metadata && metadata[0]; metadata += 2)
        json_object_set_new(pairs, metadata[0], json_string(metadata[1]));
    if (json_object_size(pairs)) json_object_set(header, "__metadata__", pairs);
    *data_bytes = 0;
    for (int64_t i = 0; i < count; i++)
        WD_TRY_OUT(add_item(header, data_bytes, &items[i], path, err));
    text = json_dumps(header, JSON_COMPACT);
    if (!text || wd_json_lacked_memory()) {
        status = wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory for the header", path);
        goto out;
    }
    size_t used = strlen(text);
    *length = wd_round_up(LENGTH_BYTES + used, DATA_ALIGN);
    WD_TRY_OUT(wd_alloc(&padded, *length, 1, "a safetensors header", err));
    uint64_t stated = *length - LENGTH_BYTES;
    memset(padded, ' ', *length);
    memcpy(padded, &stated, LENGTH_BYTES);
    memcpy((char *)padded + LENGTH_BYTES, text, used);
    *out = padded;
out:
    free(text); /* jansson's */
    json_decref(pairs);
    json_decref(header);
    return status;
}

/* Whether an error may mean that space cannot be reserved here: the kernel or the file system
 * cannot (EOPNOTSUPP, ENOSYS, EINVAL), or a sandbox forbids the call (EPERM). Then a write fails
 * where there is none, or where the file may not be written. */
static bool lacks_reserving(int error)
{
    return error == EOPNOTSUPP || error == ENOSYS || error == EINVAL || error == EPERM;
}

wd_status wd__safetensors_begin(wd_safetensors_writer **out, const char *path,
                                wd_safetensors_while named, const void *header, size_t header_bytes,
                                uint64_t data_bytes, wd_err *err)
{
    void *block;
    char name[WD_PATH_MAX];
    wd_status status;
    WD_TRY(wd_path_join(name, "", path, err));
    WD_TRY(wd_alloc(&block, 1, sizeof(wd_safetensors_writer), "a writer of tensors", err));
    wd_safetensors_writer *w = block;
    w->fd = -1;
    w->bytes_expected = data_bytes;
    memcpy(w->path, name, sizeof name);
    WD_TRY_OUT(wd_alloc(&block, WD_SAFETENSORS_BUFFER_BYTES, 1, "a write buffer", err));
    w->buffer = block;
    if (named == WD_WHILE_NAMED || !wd_file_unnamed(&w->fd, w->temporary, path)) {
        status = wd_file_temporary(&w->fd, w->temporary, path, err);
        if (status != WD_OK) w->temporary[0] = '\0'; /* there is no file to remove */
        if (status != WD_OK) goto out;
    }
    errno = wd_file_take_space(w->fd, header_bytes + data_bytes);
    if (errno && !lacks_reserving(errno)) {
        status = refuse(w, err);
        goto out;
    }
    WD_TRY_OUT(write_all(w, header, header_bytes, err));
    *out = w;
    w = NULL;
out:
    wd_safetensors_abandon(w);
    return status;
}

wd_status wd_safetensors_file_size(uint64_t *bytes, const wd_safetensors_item *items, int64_t count,
                                   const char *const *metadata, wd_err *err)
{
    char *header = NULL;
    size_t length;
    uint64_t data;
    WD_TRY(make_header(&header, &length, &data, "a file's size", items, count, metadata, err));
    wd_free(header);
    *bytes = length + data;
    return WD_OK;
}

static wd_status create(wd_safetensors_writer **out, const char *path, wd_safetensors_while named,
                        const wd_safetensors_item *items, int64_t count,
                        const char *const *metadata, wd_err *err)
{
    char *header = NULL;
    size_t length = 0;
    uint64_t bytes = 0;
    wd_status status = make_header(&header, &length, &bytes, path, items, count, metadata, err);
    if (status == WD_OK)
        status = wd__safetensors_begin(out, path, named, header, length, bytes, err);
    wd_free(header);
    return status;
}

wd_status wd_safetensors_create(wd_safetensors_writer **out, const char *path,
                                const wd_safetensors_item *items, int64_t count,
                                const char *const *metadata, wd_err *err)
{
    return create(out, path, WD_WHILE_NAMED, items, count, metadata, err);
}

wd_status wd_safetensors_create_unnamed(wd_safetensors_writer **out, const char *path,
                                        const wd_safetensors_item *items, int64_t count,
                                        const char *const *metadata, wd_err *err)
{
    return create(out, path, WD_WHILE_UNNAMED, items, count, metadata, err);
}

uint64_t wd__safetensors_bytes_put(const wd_safetensors_writer *w)
{
    return w->bytes;
}

static wd_status flush(wd_safetensors_writer *w, wd_err *err)
{
    size_t bytes = w->buffered;
    w->buffered = 0;
    return write_all(w, w->buffer, bytes, err);
}

wd_status wd_safetensors_put(wd_safetensors_writer *w, const void *data, size_t bytes, wd_err *err)
{
    if (bytes > w->bytes_expected - w->bytes)
        return wd_fail(err, WD_INTERNAL, "%s: more data than its %" PRIu64 " bytes", w->path,
                       w->bytes_expected);
    w->bytes += bytes;
    if (bytes > WD_SAFETENSORS_BUFFER_BYTES - w->buffered) WD_TRY(flush(w, err));
    if (bytes >= WD_SAFETENSORS_BUFFER_BYTES) return write_all(w, data, bytes, err);
    if (bytes) memcpy(w->buffer + w->buffered, data, bytes);
    w->buffered += bytes;
    return WD_OK;
}

static wd_status finish(wd_safetensors_writer *w, bool *is_first, wd_err *err)
{
    wd_status status;
    if (w->bytes != w->bytes_expected) {
        status = wd_fail(err, WD_INTERNAL, "%s: %" PRIu64 " of %" PRIu64 " bytes of data were put",
                         w->path, w->bytes, w->bytes_expected);
        goto out;
    }
    WD_TRY_OUT(flush(w, err));
    if (!w->temporary[0]) {
        /* flushing takes long: a process that is killed meanwhile leaves nothing behind */
        if (fsync(w->fd)) {
            status = refuse(w, err);
            goto out;
        }
        WD_TRY_OUT(wd_file_name(w->temporary, w->fd, w->path, err));
    }
    int failed = close(w->fd);
    w->fd = -1;
    if (failed) {
        status = refuse(w, err);
        goto out;
    }
    status = is_first ? wd_file_commit_first(is_first, w->temporary, w->path, err)
                      : wd_file_commit(w->temporary, w->path, err);
    w->temporary[0] = '\0'; /* renamed or removed */
out:
    wd_safetensors_abandon(w);
    return status;
}

wd_status wd_safetensors_finish(wd_safetensors_writer *w, wd_err *err)
{
    return finish(w, NULL, err);
}

wd_status wd_safetensors_finish_first(bool *is_first, wd_safetensors_writer *w, wd_err *err)
{
    return finish(w, is_first, err);
}

void wd_safetensors_abandon(wd_safetensors_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->temporary[0]) wd_file_abandon(w->temporary);
    wd_free(w->buffer);
    wd_free(w);
}
