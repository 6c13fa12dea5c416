/* The pipeline's tokenizer. It turns prompts into the token ids that transformers' T5Tokenizer
 * makes with the same SentencePiece model. */
#ifndef WD_IO_TOKENIZER_H
#define WD_IO_TOKENIZER_H

#include "core/error.h"

typedef struct wd_tokenizer wd_tokenizer;

/* Reads spiece.model in `folder`, and tokenizer_config.json if it exists. */
wd_status wd_tokenizer_open(wd_tokenizer **out, const char *folder, wd_err *err);
/* The same from the bytes of a spiece.model alone; `name` stands for it in errors. */
wd_status wd_tokenizer_open_model(wd_tokenizer **out, const void *model, size_t bytes,
                                  const char *name, wd_err *err);
void wd_tokenizer_close(wd_tokenizer *tokenizer); /* NULL is allowed */

/* Encodes a cleaned prompt (see wd_prompt_clean), followed by </s>. `ids` has space for
 * `max_length` (>= 1) ids; *count is set to their number. A longer text is cut, and </s> stays
 * last. Special tokens in the text ("<extra_id_3>") become their own ids. May be called from
 * several threads. */
wd_status wd_tokenizer_encode(int32_t *ids, int64_t *count, const wd_tokenizer *tokenizer,
                              const char *text, int64_t max_length, wd_err *err);

/* The id with which shorter texts of a batch are padded. */
int32_t wd_tokenizer_pad_id(const wd_tokenizer *tokenizer);

#endif
