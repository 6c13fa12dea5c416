/* GGUF files, version 3, as ComfyUI-GGUF, stable-diffusion.cpp and llama.cpp write them.
 *
 * The layout: "GGUF", the version, the numbers of tensors and of metadata; each metadata a key, a
 * type and a value; each tensor its name, its dimensions (the fastest first), its type and where
 * its data begin; then, aligned, the data. Format: ggml, docs/gguf.md. */
#ifndef WD_IO_TENSORS_GGUF_H
#define WD_IO_TENSORS_GGUF_H

#include "io/tensors/safetensors.h"
#include "io/tensors/safetensors_impl.h"

/* Whether the mapped file is one, by its first bytes. */
bool wd__gguf_is(const wd_safetensors_file *file);

/* Fills the entries of a file that is mapped, and its metadata with those values that are texts.
 * Everything is checked before it is used: lengths, counts, types, shapes, offsets that overlap or
 * overrun. A type of weights that is not read, and another version, are refused by name. */
wd_status wd__gguf_read(wd_safetensors_file *file, wd_err *err);

/* ggml's number of a type of weights. */
uint32_t wd__gguf_type_of(wd_dtype dtype);

/* ---- writing ---- */

/* A metadata of a file that is written: `text`, or, where that is NULL, a number (UINT32). There
 * are no arrays: stable-diffusion.cpp's reader takes the values of one for keys, and fails. */
typedef struct wd_gguf_pair {
    const char *key, *text;
    uint32_t number;
} wd_gguf_pair;

/* Starts a file with these tensors, in this order, as wd_safetensors_create does; their bytes are
 * put, and the file is finished, in the same way. Behind the bytes of each tensor wd_gguf_pad is
 * called. Rows are whole blocks. A tensor of five dimensions is written with all of them, as the
 * published files of Wan have it: ComfyUI-GGUF and stable-diffusion.cpp read that. */
wd_status wd_gguf_create(wd_safetensors_writer **out, const char *path,
                         const wd_safetensors_item *items, int64_t count, const wd_gguf_pair *pairs,
                         int64_t pair_count, wd_err *err);

/* Puts zeros up to where the next tensor begins. */
wd_status wd_gguf_pad(wd_safetensors_writer *writer, wd_err *err);

/* ---- a tokenizer ----
 *
 * A text encoder's file may have one in its metadata, as llama.cpp's converter writes that of T5
 * and UMT5: tokens, their scores and types, and the map of characters. */

/* Whether the set is a GGUF file whose metadata name a tokenizer. */
bool wd_gguf_has_spiece(const wd_safetensors *set);

/* Makes of them a SentencePiece model, the bytes of a spiece.model, which are checked when it is
 * opened (io/text/spiece_check.c). Another kind than T5's, lists of different lengths and values
 * that are none are refused by name. *out is the caller's to wd_free. */
wd_status wd_gguf_spiece(char **out, size_t *bytes, const wd_safetensors *set, wd_err *err);

#endif
