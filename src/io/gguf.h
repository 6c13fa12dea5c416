/* GGUF files, version 3, as ComfyUI-GGUF, stable-diffusion.cpp and llama.cpp write them.
 *
 * The layout: "GGUF", the version, the numbers of tensors and of metadata; each metadata a key, a
 * type and a value; each tensor its name, its dimensions (the fastest first), its type and where
 * its data begin; then, aligned, the data. Format: ggml, docs/gguf.md. */
#ifndef WD_IO_GGUF_H
#define WD_IO_GGUF_H

#include "io/safetensors_file.h"

/* Whether the mapped file is one, by its first bytes. */
bool wd_gguf_is(const wd_safetensors_file *file);

/* Fills the entries of a file that is mapped, and its metadata with those values that are texts.
 * Everything is checked before it is used: lengths, counts, types, shapes, offsets that overlap or
 * overrun. A type of weights that is not read, and another version, are refused by name. */
wd_status wd_gguf_read(wd_safetensors_file *file, wd_err *err);

#endif
