/* Folder io/tensors. Files of tensors, which are safetensors and GGUF.
 *
 * safetensors files: mapped for reading, written as a stream. GGUF files are read in the same way
 * (io/tensors/gguf.h), and make sets of their own.
 *
 * A set is one file, or the shards that an index names. Every byte of a header is checked before a
 * pointer is formed from it: lengths, dtypes, shapes, and offsets that overlap, overrun or leave
 * gaps (as strictly as in the format's reference implementation). A file that shrinks while it is
 * mapped raises SIGBUS (io/file/file.h), so checkpoints are replaced by rename and never
 * rewritten in place. */
#ifndef WD_IO_TENSORS_SAFETENSORS_H
#define WD_IO_TENSORS_SAFETENSORS_H

#include "core/error.h"
#include "core/tensor.h"

typedef struct wd_safetensors wd_safetensors;

typedef struct wd_safetensors_entry {
    const char *name;
    const char *stored;   /* its name in the file */
    const char *file;     /* path of the file that contains the tensor */
    uint64_t file_offset; /* of the tensor's first byte in that file */
    wd_tensor tensor;     /* data is mapped read-only: writing to it crashes */
    bool unaligned;       /* data is not aligned to the element size: copy it before use */
    bool merges_dims;     /* of GGUF: its shape may lack dimensions of 1, and have some as one */
    bool scaled;          /* it is quantised, and tensor.scales has its scales, if it needs any */
    const struct wd_safetensors_entry *scale; /* the tensor that has these, or NULL: 1 */
} wd_safetensors_entry;

/* Opens `path`: a safetensors or GGUF file, or a .safetensors.index.json. */
wd_status wd_safetensors_open(wd_safetensors **out, const char *path, wd_err *err);

/* Opens <folder>/<stem>.safetensors.index.json if it exists, else <folder>/<stem>.safetensors; if
 * only shards without their index are there, or a variant such as <stem>.fp16.safetensors exists,
 * the error names it. If nothing is found, the error has both names. */
wd_status wd_safetensors_open_stem(wd_safetensors **out, const char *folder, const char *stem,
                                   wd_err *err);
/* Whether a file's name is that of one shard of several: "...-00001-of-00014.safetensors". */
bool wd_safetensors_is_shard(const char *path);

void wd_safetensors_close(
    wd_safetensors *set); /* NULL is allowed; tensors of the set become invalid */

/* Entries sorted by name. */
int64_t wd_safetensors_count(const wd_safetensors *set);
const wd_safetensors_entry *wd_safetensors_at(const wd_safetensors *set, int64_t i);
const wd_safetensors_entry *wd_safetensors_find(const wd_safetensors *set, const char *name);

/* Gives entry i (of wd_safetensors_at) the name names[i], of which the set keeps a copy; NULL keeps
 * its name. Two entries with one name are an error, after which the set can only be closed. */
wd_status wd_safetensors_rename(wd_safetensors *set, const char *const *names, wd_err *err);

/* Puts the tensors of another file in the place of those of the set that have their names, shapes
 * as they are there. "x.weight_scale" is the scale of "x.weight", which every quantised tensor of
 * the file must have. A tensor that the set lacks is an error, after which the set can only be
 * closed. The file belongs to the set from then on. */
wd_status wd_safetensors_overlay(wd_safetensors *set, const char *path, wd_err *err);

/* Says that entry i will have this dtype once its set is overlaid, and a scale for each row where
 * that is a quantised one: until then neither has data. */
wd_status wd_safetensors_expect_overlay(wd_safetensors *set, int64_t i, wd_dtype dtype,
                                        wd_err *err);

/* Gives quantised weights their scales, and takes from the set's entries those that only describe
 * quantisation. Scales are "x.weight_scale", "x.scale_weight" or "x.weight_scale_inv" of
 * "x.weight": one number, one for each row, or [rows, parts of a row, 1]; scales of inputs are
 * dropped. Another tensor "x.something" beside a quantised "x.weight", and tensors of bitsandbytes,
 * quanto and the like, are errors. ComfyUI's marks (a tensor "scaled_fp8", tensors "x.comfy_quant",
 * the metadata "_quantization_metadata") must name formats that are read. A file with marks or
 * scales must have one for every quantised tensor; without any, 8-bit floats are taken as they are,
 * and int8 is an error. After an error the set can only be closed. */
wd_status wd_safetensors_pair_scales(wd_safetensors *set, wd_err *err);

/* The number of files of the set, the path of file i, and the bytes of all files. */
int64_t wd_safetensors_file_count(const wd_safetensors *set);
const char *wd_safetensors_file_at(const wd_safetensors *set, int64_t i);
uint64_t wd_safetensors_file_bytes(const wd_safetensors *set);
/* The value of a key of __metadata__ in the first file, or NULL. */
const char *wd_safetensors_metadata(const wd_safetensors *set, const char *key);

/* Gives entry i the shape of `spec`, if the file is GGUF and has it without dimensions of 1, or
 * with dimensions that follow one another as one: [96, 16, 1, 2, 2] as [1536, 1, 2, 2]. GGML has
 * four dimensions, so stable-diffusion.cpp writes them so; the order of the values is the same. */
void wd_safetensors_take_shape(wd_safetensors *set, int64_t i, const wd_tensor_spec *spec);

/* Finds the tensor of `spec`, which gets this shape. In the file it must have it, also the
 * dimensions of 1, or in GGUF one that wd_safetensors_take_shape takes for it; its dtype must be
 * F32, F16, BF16, or quantised and scaled. Otherwise the error names file, tensor, what was
 * expected and what was found. */
wd_status wd_safetensors_expect(wd_tensor *out, const wd_safetensors *set,
                                const wd_tensor_spec *spec, wd_err *err);

/* Tells the kernel that a tensor's pages will be needed soon, or no longer. */
void wd_safetensors_will_need(const wd_safetensors_entry *entry);
void wd_safetensors_dont_need(const wd_safetensors_entry *entry);

/* Tells the kernel whether only scattered pages will be read, so that it does not read 0.1 to 8 MiB
 * ahead with each of them. */
void wd__safetensors_will_skip(const wd_safetensors *set, bool skip);

/* ---- keys ----
 *
 * A hash that tells sets of weights apart without reading all of them, since reading 60 GB would
 * take minutes. It covers the names, dtypes and shapes of all tensors, and of their values the
 * first page of each tensor and pages at equal distances, up to 4 MiB in all. */

enum { WD_SAFETENSORS_KEY_MAX = 33 };

/* Writes 32 hex digits: XXH3-128 of the weights and of `more`, any text of the caller. */
void wd_safetensors_key(char out[WD_SAFETENSORS_KEY_MAX], const wd_safetensors *weights,
                        const char *more);

/* ---- writing ---- */

typedef struct wd_safetensors_item {
    const char *name;
    wd_dtype dtype;
    int ndim;
    int64_t dim[WD_DIMS_MAX];
} wd_safetensors_item;

typedef struct wd_safetensors_writer wd_safetensors_writer;

enum { WD_SAFETENSORS_BUFFER_BYTES = 1 << 20 }; /* of a writer, in host memory */

/* Starts a file with these tensors, in this order (with wide dtypes first, all are aligned).
 * `metadata`: pairs key, value, ..., NULL; or NULL. Bytes are written to a temporary file, which
 * finish renames to `path`. Disk space is reserved at once; the data section is 64-byte aligned.
 * End with finish or abandon. */
wd_status wd_safetensors_create(wd_safetensors_writer **out, const char *path,
                                const wd_safetensors_item *items, int64_t count,
                                const char *const *metadata, wd_err *err);
/* The same for a large file in a folder that is no temporary one: where the file system allows it,
 * the file has no name until it is finished, so that nothing is left of it if the process is
 * killed. */
wd_status wd_safetensors_create_unnamed(wd_safetensors_writer **out, const char *path,
                                        const wd_safetensors_item *items, int64_t count,
                                        const char *const *metadata, wd_err *err);
/* *bytes = the size of the file that wd_safetensors_create makes of the same arguments. */
wd_status wd_safetensors_file_size(uint64_t *bytes, const wd_safetensors_item *items, int64_t count,
                                   const char *const *metadata, wd_err *err);
/* Appends the next bytes of the data section; calls need not match tensors. */
wd_status wd_safetensors_put(wd_safetensors_writer *writer, const void *data, size_t bytes,
                             wd_err *err);
/* Flushes and renames the file; all bytes must have been put. Frees the writer, also on failure. */
wd_status wd_safetensors_finish(wd_safetensors_writer *writer, wd_err *err);
/* The same, but a file that has come to the path meanwhile stays: wd_file_commit_first. */
wd_status wd_safetensors_finish_first(bool *is_first, wd_safetensors_writer *writer, wd_err *err);
void wd_safetensors_abandon(wd_safetensors_writer *writer); /* NULL is allowed */

#endif
