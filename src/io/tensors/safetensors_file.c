/* One safetensors file: see io/tensors/safetensors_impl.h.
 *
 * The layout: 8 bytes with the header's length (little endian), the header (JSON: tensor name ->
 * dtype, shape, data_offsets relative to the header's end), the data. Nothing in the header is
 * trusted: the tensors must cover the data section without a gap, and each must be exactly as long
 * as dtype and shape say. */
#include "io/tensors/safetensors_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checked.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/file/file.h"
#include "io/file/hub.h"
#include "io/json/json.h"
#include "io/tensors/gguf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little endian");

enum { LENGTH_BYTES = 8, HEADER_BYTES_MAX = 100 * 1000 * 1000 };

/* dtypes of the format that this program does not read, and what has them. */
static const struct {
    const char *dtype, *in;
} foreign_dtypes[] = {{"F8_E8M0", "mxfp8 or mxfp4"},
                      {"F4", "nvfp4 or mxfp4"},
                      {"F6_E2M3", "mxfp6"},
                      {"F6_E3M2", "mxfp6"},
                      {"U16", NULL},
                      {"U32", NULL},
                      {"U64", NULL},
                      {"C64", NULL}};

static wd_status map_file(wd_safetensors_file *file, wd_err *err)
{
    const char *path = file->path;
    struct stat info;
    wd_status status = WD_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const int code = errno;
        char advice[WD_PATH_MAX];
        return wd_fail(err, code == ENOENT ? WD_NOT_FOUND : WD_IO, "%s: cannot be opened: %s%s",
                       path, strerror(code),
                       code == ENOENT ? wd_hub_advice(advice, sizeof advice, path, NULL) : "");
    }
    if (fstat(fd, &info)) {
        status = wd_fail(err, WD_IO, "%s: cannot be read: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = wd_fail(err, WD_IO, "%s: is not a file", path);
    } else if (info.st_size < LENGTH_BYTES) {
        status =
            wd_fail(err, WD_BAD_FORMAT,
                    "%s: is %lld bytes long, too short for a safetensors or GGUF file (truncated, "
                    "or a download that failed?)",
                    path, (long long)info.st_size);
    } else {
        /* private, since some file systems (FUSE, network) have no shared maps */
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            status = wd_fail(err, errno == ENOMEM ? WD_OUT_OF_MEMORY : WD_IO,
                             "%s: cannot be mapped (%lld bytes): %s", path, (long long)info.st_size,
                             strerror(errno));
        } else {
            file->map = map;
            file->bytes = (size_t)info.st_size;
            wd_mapped_note(map, file->bytes, path);
        }
    }
    close(fd);
    return status;
}

/* Parses the header's JSON, and sets *data_start to the offset of the data section. */
static wd_status parse_header(json_t **out, size_t *data_start, const wd_safetensors_file *file,
                              wd_err *err)
{
    static const char lfs[] = "version https://git-lfs";
    const char *text = file->map;
    uint64_t length;
    memcpy(&length, text, sizeof length);
    if (file->bytes >= sizeof lfs && !memcmp(text, lfs, sizeof lfs - 1))
        return wd_fail(
            err, WD_BAD_FORMAT,
            "%s: is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder",
            file->path);
    if (length > HEADER_BYTES_MAX)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: header length %" PRIu64
                       " is above the format's limit of %d bytes (not a "
                       "safetensors file?)",
                       file->path, length, HEADER_BYTES_MAX);
    if (length > file->bytes - LENGTH_BYTES)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: header length %" PRIu64 " overruns the file of %zu bytes (truncated?)",
                       file->path, length, file->bytes);
    json_t *json;
    WD_TRY(wd_json_parse_mapped(&json, text + LENGTH_BYTES, (size_t)length, file->path, err));
    if (!json_is_object(json)) {
        json_decref(json);
        return wd_fail(err, WD_BAD_FORMAT, "%s: header is not a JSON object", file->path);
    }
    *data_start = LENGTH_BYTES + (size_t)length;
    *out = json;
    return WD_OK;
}

static wd_status take_metadata(wd_safetensors_file *file, json_t *metadata, wd_err *err)
{
    const char *key;
    json_t *value;
    if (!metadata || json_is_null(metadata)) return WD_OK;
    if (!json_is_object(metadata))
        return wd_fail(err, WD_BAD_FORMAT, "%s: __metadata__ is not a JSON object", file->path);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return wd_fail(err, WD_BAD_FORMAT, "%s: __metadata__ \"%.*s\" is not a string",
                           file->path, WD_TERMINAL_SAFE(key, 100));
    }
    file->metadata = json_incref(metadata);
    return WD_OK;
}

static wd_status read_dtype(wd_dtype *out, const char *name, const json_t *json, const char *path,
                            wd_err *err)
{
    const char *text = json_string_value(json);
    if (!text)
        return wd_fail(err, WD_BAD_FORMAT, "%s: tensor \"%s\": dtype is missing or not a string",
                       path, name);
    for (int i = 0; i < WD_DTYPE_COUNT; i++) {
        if (strcmp(text, wd_dtype_file_name((wd_dtype)i))) continue;
        if (wd_dtype_block((wd_dtype)i) > 1) break; /* of GGUF files */
        *out = (wd_dtype)i;
        return WD_OK;
    }
    for (size_t i = 0; i < sizeof foreign_dtypes / sizeof *foreign_dtypes; i++) {
        const char *in = foreign_dtypes[i].in;
        if (!strcmp(text, foreign_dtypes[i].dtype))
            return wd_fail(err, WD_UNSUPPORTED,
                           "%s: tensor \"%s\" has dtype %s%s%s, expected F32, F16, BF16, F8_E4M3, "
                           "F8_E5M2 or I8; docs/models.md lists the forms that are read",
                           path, name, text, in ? ", as weights quantised to " : "", in ? in : "");
    }
    return wd_fail(err, WD_BAD_FORMAT, "%s: tensor \"%s\" has unknown dtype \"%.*s\"", path, name,
                   WD_TERMINAL_SAFE(text, 40));
}

/* Reads the shape, and computes the bytes of the tensor. The product without extents of 0 is
 * bounded, too, so that a product of some extents of an empty tensor does not overflow. */
static wd_status read_shape(wd_tensor *tensor, size_t *bytes, const char *name, const json_t *json,
                            const char *path, wd_err *err)
{
    if (!json_is_array(json))
        return wd_fail(err, WD_BAD_FORMAT, "%s: tensor \"%s\": shape is missing or not an array",
                       path, name);
    size_t ndim = json_array_size(json), count = 1, product = 1;
    if (ndim > WD_DIMS_MAX)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: tensor \"%s\" has %zu dimensions, expected at most %d", path, name,
                       ndim, WD_DIMS_MAX);
    tensor->ndim = (int)ndim;
    for (size_t i = 0; i < ndim; i++) {
        const json_t *value = json_array_get(json, i);
        int64_t dim = json_integer_value(value);
        if (!json_is_integer(value) || dim < 0)
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: tensor \"%s\": dimension %zu is not a whole number from 0", path,
                           name, i);
        if (!wd_mul_size(&product, product, dim ? (size_t)dim : 1) || product > INT64_MAX / 8)
            return wd_fail(err, WD_BAD_FORMAT, "%s: tensor \"%s\": product of its shape overflows",
                           path, name);
        tensor->dim[i] = dim;
        count *= (size_t)dim; /* 0 for an empty tensor */
    }
    *bytes = wd_dtype_size(tensor->dtype, (int64_t)count);
    return WD_OK;
}

static wd_status read_offsets(uint64_t out[2], const char *name, const json_t *json,
                              const char *path, wd_err *err)
{
    bool fine = json_is_array(json) && json_array_size(json) == 2;
    for (size_t i = 0; fine && i < 2; i++) {
        const json_t *value = json_array_get(json, i);
        fine = json_is_integer(value) && json_integer_value(value) >= 0;
        out[i] = (uint64_t)json_integer_value(value);
    }
    if (fine) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: tensor \"%s\": data_offsets is not an array of two whole numbers from 0",
                   path, name);
}

/* Reads one entry of the header. */
static wd_status read_entry(wd_safetensors_entry *out, const char *name, const json_t *json,
                            size_t data_start, const wd_safetensors_file *file, wd_err *err)
{
    const char *path = file->path;
    size_t bytes = 0, data_bytes = file->bytes - data_start;
    uint64_t offset[2];
    if (!json_is_object(json))
        return wd_fail(err, WD_BAD_FORMAT, "%s: tensor \"%s\" is not a JSON object", path, name);
    WD_TRY(read_dtype(&out->tensor.dtype, name, json_object_get(json, "dtype"), path, err));
    WD_TRY(read_shape(&out->tensor, &bytes, name, json_object_get(json, "shape"), path, err));
    WD_TRY(read_offsets(offset, name, json_object_get(json, "data_offsets"), path, err));
    if (offset[0] > offset[1])
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: tensor \"%s\": data_offsets end at %" PRIu64
                       ", before they begin at %" PRIu64,
                       path, name, offset[1], offset[0]);
    if (offset[1] - offset[0] != bytes)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: tensor \"%s\": data_offsets span %" PRIu64
                       " bytes, expected %zu for its shape and %s",
                       path, name, offset[1] - offset[0], bytes,
                       wd_dtype_file_name(out->tensor.dtype));
    if (offset[1] > data_bytes)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: tensor \"%s\" ends at data byte %" PRIu64 ", but the file has only %zu "
                       "(truncated?)",
                       path, name, offset[1], data_bytes);
    out->file = path;
    out->file_offset = data_start + offset[0];
    out->tensor.data = (char *)file->map + out->file_offset;
    out->unaligned = out->file_offset % wd_dtype_align(out->tensor.dtype) != 0;
    return WD_OK;
}

static int by_offset(const void *a, const void *b)
{
    const wd_safetensors_entry *x = a, *y = b;
    if (x->file_offset != y->file_offset) return x->file_offset < y->file_offset ? -1 : 1;
    size_t m = wd_tensor_bytes(&x->tensor), n = wd_tensor_bytes(&y->tensor);
    if (m != n) return m < n ? -1 : 1; /* empty tensors first: they overlap nothing */
    return strcmp(x->name, y->name);
}

/* Checks that the tensors follow one another from the first byte of the data to the last. */
static wd_status check_tiling(const wd_safetensors_file *file, size_t data_start, wd_err *err)
{
    size_t at = data_start;
    const char *before = "the header";
    for (int64_t i = 0; i < file->count; i++) {
        const wd_safetensors_entry *e = &file->entry[i];
        if (e->file_offset < at)
            return wd_fail(err, WD_BAD_FORMAT, "%s: data of tensors \"%s\" and \"%s\" overlap",
                           file->path, before, e->name);
        if (e->file_offset > at)
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: %zu bytes between %s and tensor \"%s\" belong to no tensor",
                           file->path, (size_t)e->file_offset - at, before, e->name);
        at += wd_tensor_bytes(&e->tensor);
        before = e->name;
    }
    if (at != file->bytes)
        return wd_fail(err, WD_BAD_FORMAT, "%s: %zu bytes behind %s belong to no tensor",
                       file->path, file->bytes - at, before);
    return WD_OK;
}

static wd_status read_entries(wd_safetensors_file *file, const json_t *header, size_t data_start,
                              wd_err *err)
{
    const char *name;
    json_t *value;
    size_t names_bytes = 0, count = 0;
    json_object_foreach((json_t *)header, name, value) names_bytes += strlen(name) + 1, count++;
    void *block;
    WD_TRY(wd_alloc(&block, names_bytes, 1, "tensor names", err));
    file->names = block;
    WD_TRY(wd_alloc(&block, count, sizeof *file->entry, "a list of tensors", err));
    file->entry = block;
    char *next = file->names;
    json_object_foreach((json_t *)header, name, value)
    {
        if (!strcmp(name, "__metadata__")) {
            WD_TRY(take_metadata(file, value, err));
            continue;
        }
        wd_safetensors_entry *entry = &file->entry[file->count];
        size_t bytes = strlen(name) + 1;
        const size_t plain = (size_t)wd_terminal_safe_bytes(name, bytes - 1, INT_MAX);
        if (plain + 1 < bytes)
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: the name of a tensor has a control character after \"%.*s\"",
                           file->path, (int)plain, name);
        WD_TRY(read_entry(entry, name, value, data_start, file, err));
        entry->name = entry->stored = next;
        memcpy(next, name, bytes);
        next += bytes;
        file->count++;
    }
    qsort(file->entry, (size_t)file->count, sizeof *file->entry, by_offset);
    return check_tiling(file, data_start, err);
}

wd_status wd__safetensors_file_open(wd_safetensors_file *out, const char *path, wd_err *err)
{
    wd_safetensors_file file = {0};
    json_t *header = NULL;
    size_t data_start = 0;
    wd_status status;
    WD_TRY_OUT(wd_copy_text(&file.path, path, err));
    WD_TRY_OUT(map_file(&file, err));
    if (wd__gguf_is(&file)) {
        WD_TRY_OUT(wd__gguf_read(&file, err));
    } else {
        WD_TRY_OUT(parse_header(&header, &data_start, &file, err));
        WD_TRY_OUT(read_entries(&file, header, data_start, err));
    }
    *out = file;
    memset(&file, 0, sizeof file);
out:
    json_decref(header);
    wd__safetensors_file_close(&file);
    return status;
}

void wd__safetensors_file_close(wd_safetensors_file *file)
{
    if (file->map) {
        wd_mapped_forget(file->map);
        munmap(file->map, file->bytes);
    }
    json_decref(file->metadata);
    wd_free(file->entry);
    wd_free(file->header);
    wd_free(file->names);
    wd_free(file->path);
    memset(file, 0, sizeof *file);
}
