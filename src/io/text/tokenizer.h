/* The pipeline's tokenizer. It turns prompts into the token ids that transformers' T5Tokenizer
 * makes with the same SentencePiece model. */
#ifndef WD_IO_TEXT_TOKENIZER_H
#define WD_IO_TEXT_TOKENIZER_H

#include "core/error.h"

typedef struct wd_tokenizer wd_tokenizer;

/* Reads spiece.model in `folder`, and tokenizer_config.json if it exists. */
wd_status wd_tokenizer_open(wd_tokenizer **out, const char *folder, wd_err *err);
/* The same from the bytes of a spiece.model alone; `name` stands for it in errors. */
wd_status wd_tokenizer_open_model(wd_tokenizer **out, const void *model, size_t bytes,
                                  const char *name, wd_err *err);
void wd_tokenizer_close(wd_tokenizer *tokenizer); /* NULL is allowed */

/* The bytes of `text` that are encoded at once: all, or, of a longer text, as many as end before a
 * space, at most WD_TOKENIZER_PART_BYTES.
 *
 * Why parts: SentencePiece's time grows with the square of the number of neighbouring characters
 * that the vocabulary lacks (io/text/spiece.h): 128,000 of them took a minute, 349,000 more than 25
 * minutes. And only the first tokens count, so that the parts behind them need not be encoded.
 *
 * Why the tokens are the same: in the vocabularies of T5 and UMT5 a space is only the first
 * character of a piece, so no piece reaches over one, and the best segmentation of a text is that
 * of its words. Only a word longer than a part (no prompt has one, save in a script without spaces)
 * may have other tokens where it is cut, one or two of them. That does not matter either: a piece
 * has at most 16 characters by the trainer's default, so that a part of 8192 bytes in such a script
 * has 2700 characters and, as a rule, more tokens than the 512 that Wan's text may have. Unknown
 * characters are one token, however many they are, and are so across parts. */
enum { WD_TOKENIZER_PART_BYTES = 8192 };
size_t wd__tokenizer_part(const char *text, size_t bytes);

/* Encodes a cleaned prompt (see wd_prompt_clean), followed by </s>. `ids` has space for
 * `max_length` (>= 1) ids; *count is set to their number. A longer text is cut, and </s> stays
 * last. Special tokens in the text ("<extra_id_3>") become their own ids. Ends with
 * WD_INTERRUPTED when a stop is requested. May be called from several threads. */
wd_status wd_tokenizer_encode(int32_t *ids, int64_t *count, const wd_tokenizer *tokenizer,
                              const char *text, int64_t max_length, wd_err *err);

/* The id with which shorter texts of a batch are padded. */
int32_t wd_tokenizer_pad_id(const wd_tokenizer *tokenizer);

#endif
