/* Sparse checkpoints of true shapes, which take no disk space: the header is written, the data is a
 * hole. */
#ifndef WD_TESTS_SPARSE_H
#define WD_TESTS_SPARSE_H

#include <fcntl.h>
#include <unistd.h>

#include "testing.h"
#include "core/text.h"

/* Writes lines first, first + step, ... of a table to one file in `dtype` (islands too). Lines
 * without elements, and the line that `skip` names, are left out. */
static inline void wd_test_sparse_file(const char *path, const wd_tensor_table *table,
                                       int64_t first, int64_t step, wd_dtype dtype,
                                       const char *skip)
{
    char *header = malloc((size_t)table->count * 300 + 64), shape[128];
    size_t used = 8, data = 0;
    header[used++] = '{';
    for (int64_t i = first; i < table->count; i += step) {
        const wd_tensor_spec *s = &table->spec[i];
        size_t bytes = wd_dtype_bytes(dtype);
        for (int d = 0; d < s->ndim; d++) bytes *= (size_t)s->dim[d];
        if (!bytes || (skip && !strcmp(skip, s->name))) continue;
        wd_dims_text(shape, sizeof shape, s->dim, s->ndim);
        used += (size_t)sprintf(
            header + used, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
            data ? "," : "", s->name, wd_dtype_file_name(dtype), shape, data, data + bytes);
        data += bytes;
    }
    header[used++] = '}';
    while (used % 8) header[used++] = ' ';
    uint64_t length = used - 8;
    memcpy(header, &length, 8);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, header, used) != (ssize_t)used || ftruncate(fd, (off_t)(used + data)))
        fail_msg("%s: cannot be made", path);
    close(fd);
    free(header);
}

/* Writes <folder>/<stem>.safetensors, or `shards` files with their index. */
static inline void wd_test_sparse_set(const char *folder, const char *stem,
                                      const wd_tensor_table *table, int shards, wd_dtype dtype,
                                      const char *skip)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_test_ok(wd_folder_make(folder, &err), &err);
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, stem);
    if (shards == 1) {
        wd_test_sparse_file(path, table, 0, 1, dtype, skip);
        return;
    }
    for (int i = 0; i < shards; i++) {
        snprintf(path, sizeof path, "%s/%s-%05d-of-%05d.safetensors", folder, stem, i + 1, shards);
        wd_test_sparse_file(path, table, i, shards, dtype, skip);
    }
    snprintf(path, sizeof path, "%s/%s.safetensors.index.json", folder, stem);
    FILE *index = fopen(path, "w");
    if (!index) fail_msg("%s: cannot be made", path);
    fprintf(index, "{\"metadata\": {\"total_size\": 0}, \"weight_map\": {");
    const char *comma = "";
    for (int64_t i = 0; i < table->count; i++) {
        const wd_tensor_spec *s = &table->spec[i];
        if (skip && !strcmp(skip, s->name)) continue;
        fprintf(index, "%s\"%s\": \"%s-%05d-of-%05d.safetensors\"", comma, s->name, stem,
                (int)(i % shards) + 1, shards);
        comma = ", ";
    }
    fprintf(index, "}}");
    fclose(index);
}

#endif
