/* Files of tensors: see api/jobs/tensor_file.h. */
#include "api/jobs/tensor_file.h"

#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/file/file.h"
#include "io/file/writable.h"

/* The names of the first tensors of the file, for errors. */
static const char *names_text(char *out, size_t bytes, const wd_safetensors *file)
{
    const int64_t count = wd_safetensors_count(file);
    size_t used = 0;
    if (!count) wd_append_text(out, bytes, 0, "none");
    for (int64_t i = 0; i < count && i < 8; i++)
        used = wd_append_text(out, bytes, used, "%s%s", i ? ", " : "",
                              wd_safetensors_at(file, i)->name);
    if (count > 8) wd_append_text(out, bytes, used, " and %lld more", (long long)(count - 8));
    return out;
}

static const char *file_name(const wd_safetensors *file)
{
    return wd_safetensors_count(file) ? wd_safetensors_at(file, 0)->file : "input file";
}

static wd_status find(const wd_tensor **out, int64_t *dim, int ndim, const wd_safetensors *file,
                      const char *name, wd_err *err)
{
    char text[1024];
    const wd_safetensors_entry *entry = wd_safetensors_find(file, name);
    if (!entry)
        return wd_fail(err, WD_NOT_FOUND, "%s: expected a tensor \"%s\", found %s", file_name(file),
                       name, names_text(text, sizeof text, file));
    const wd_tensor *t = &entry->tensor;
    if (t->dtype >= WD_F8_E4M3)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: tensor \"%s\" is quantised (%s); expected a dtype such as F32 or BF16",
                       entry->file, name, wd_dtype_file_name(t->dtype));
    if (t->ndim != ndim)
        return wd_fail(err, WD_MISMATCH, "%s: tensor \"%s\": expected %d dimensions, found %s",
                       entry->file, name, ndim, wd_dims_text(text, sizeof text, t->dim, t->ndim));
    if (!wd_tensor_count(t))
        return wd_fail(err, WD_MISMATCH, "%s: tensor \"%s\" has no elements, but the shape %s",
                       entry->file, name, wd_dims_text(text, sizeof text, t->dim, t->ndim));
    memcpy(dim, t->dim, (size_t)ndim * sizeof *dim);
    *out = t;
    return WD_OK;
}

/* Element i as a double; the file's data may be unaligned. */
static double element(const wd_tensor *t, int64_t i)
{
    const size_t bytes = wd_dtype_bytes(t->dtype);
    const char *at = (const char *)t->data + (size_t)i * bytes;
    union {
        float f32;
        double f64;
        uint16_t u16;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
    } v;
    memcpy(&v, at, bytes);
    switch (t->dtype) {
    case WD_F32:
        return (double)v.f32;
    case WD_F64:
        return v.f64;
    case WD_F16:
        return (double)wd_f16_to_f32(v.u16);
    case WD_BF16:
        return (double)wd_bf16_to_f32(v.u16);
    case WD_I64:
        return (double)v.i64;
    case WD_I32:
        return v.i32;
    case WD_I16:
        return v.i16;
    case WD_I8:
        return v.i8;
    default:
        break;
    }
    return v.u8;
}

wd_status wd__tensor_file_floats(float **out, int64_t *dim, int ndim, const wd_safetensors *file,
                                 const char *name, wd_err *err)
{
    const wd_tensor *t;
    WD_TRY(find(&t, dim, ndim, file, name, err));
    const int64_t count = wd_tensor_count(t);
    WD_TRY(wd_alloc((void **)out, (size_t)count + 1, sizeof **out, name, err));
    for (int64_t i = 0; i < count; i++) (*out)[i] = (float)element(t, i);
    return WD_OK;
}

wd_status wd__tensor_file_ints(int32_t **out, int64_t *dim, int ndim, const wd_safetensors *file,
                               const char *name, wd_err *err)
{
    const wd_tensor *t;
    WD_TRY(find(&t, dim, ndim, file, name, err));
    const int64_t count = wd_tensor_count(t);
    int32_t *values;
    WD_TRY(wd_alloc((void **)&values, (size_t)count + 1, sizeof *values, name, err));
    for (int64_t i = 0; i < count; i++) {
        const double v = element(t, i);
        values[i] = v >= INT32_MIN && v <= INT32_MAX ? (int32_t)v : 0;
        if ((double)values[i] == v) continue;
        wd_free(values);
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: tensor \"%s\", element %lld: expected a 32-bit integer, found %g",
                       file_name(file), name, (long long)i, v);
    }
    *out = values;
    return WD_OK;
}

wd_tensor_out wd__tensor_out_of(const char *name, wd_dtype dtype, const void *data,
                                const int64_t *dim, int ndim)
{
    wd_tensor_out t = {.item = {.name = name, .dtype = dtype, .ndim = ndim}, .data = data};
    memcpy(t.item.dim, dim, (size_t)ndim * sizeof *dim);
    return t;
}

static size_t item_bytes(const wd_safetensors_item *item)
{
    size_t bytes = wd_dtype_bytes(item->dtype);
    for (int i = 0; i < item->ndim; i++) bytes *= (size_t)item->dim[i];
    return bytes;
}

/* The metadata that marks a file of tensors, which may be overwritten. */
static const char *const mark[] = {"wandistiller.file", "tensors", NULL};

/* *out = whether the file has the mark; a file that cannot be read has none. */
static wd_status look_for_mark(bool *out, const char *path, wd_err *err)
{
    wd_safetensors *file = NULL;
    const wd_status status = wd_safetensors_open(&file, path, err);
    const char *value = status == WD_OK ? wd_safetensors_metadata(file, mark[0]) : NULL;
    *out = value && !strcmp(value, mark[1]);
    wd_safetensors_close(file);
    return status == WD_OUT_OF_MEMORY ? status : WD_OK;
}

wd_status wd__tensor_file_check(const char *path, const char *option, const char *in, wd_err *err)
{
    static const char *const others[] = {".pt",  ".pth",  ".bin", ".ckpt", ".npy",
                                         ".npz", ".gguf", ".png", ".json", NULL};
    bool replaceable;
    WD_TRY(wd_path_refuse_endings(path, option, others, "a .safetensors file", err));
    WD_TRY(wd_file_check_writable(path, option, err));
    if (!wd_path_exists(path)) return WD_OK;
    if (in && wd_path_is_inside(path, in))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s %s: the job reads this file, so it cannot write it; choose another %s",
                       option, path, option);
    WD_TRY(look_for_mark(&replaceable, path, err));
    if (replaceable) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s %s: this file exists already, and only a file of tensors that this program "
                   "wrote is replaced; choose another %s",
                   option, path, option);
}

wd_status wd__tensor_file_write(const char *path, const wd_tensor_out *tensors, int64_t count,
                                wd_err *err)
{
    wd_safetensors_item *items;
    wd_safetensors_writer *writer = NULL;
    WD_TRY(wd_alloc((void **)&items, (size_t)count, sizeof *items, "tensor list", err));
    for (int64_t i = 0; i < count; i++) items[i] = tensors[i].item;
    wd_status status = wd_safetensors_create(&writer, path, items, count, mark, err);
    for (int64_t i = 0; i < count && status == WD_OK; i++)
        status = wd_safetensors_put(writer, tensors[i].data, item_bytes(&items[i]), err);
    if (status == WD_OK) {
        status = wd_safetensors_finish(writer, err); /* frees it, also when it fails */
        writer = NULL;
    }
    wd_safetensors_abandon(writer);
    wd_free(items);
    return status;
}
