/* The tokenizer in the metadata of a GGUF file, as llama.cpp's converter writes that of T5 and
 * UMT5: tokens, their scores and types, and the map of characters. */
#ifndef WD_IO_TENSORS_GGUF_SPIECE_H
#define WD_IO_TENSORS_GGUF_SPIECE_H

#include "io/tensors/safetensors.h"

/* Whether the set is a GGUF file whose metadata name a tokenizer. */
bool wd_gguf_has_spiece(const wd_safetensors *set);

/* Makes of them a SentencePiece model, the bytes of a spiece.model, which are checked when it is
 * opened (io/text/spiece_check.h). Another kind than T5's, lists of different lengths and values
 * that are none are refused by name. *out is the caller's to wd_free. */
wd_status wd_gguf_spiece(char **out, size_t *bytes, const wd_safetensors *set, wd_err *err);

#endif
