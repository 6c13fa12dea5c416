/* A C interface to SentencePiece, which turns exceptions into errors, and a check of what
 * SentencePiece is given. */
#ifndef WD_IO_TEXT_SPIECE_H
#define WD_IO_TEXT_SPIECE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "core/error.h"

typedef struct wd_spiece wd_spiece;

/* Opens a model from the bytes of a spiece.model; errors name `path`. */
wd_status wd__spiece_open(wd_spiece **out, const void *model, size_t bytes, const char *path,
                          wd_err *err);
void wd__spiece_close(wd_spiece *spiece); /* NULL is allowed */

int32_t wd__spiece_count(const wd_spiece *spiece);
int32_t wd__spiece_find(const wd_spiece *spiece, const char *piece); /* id, or -1 */

/* Encodes `text` without tokens before or after it. If *count exceeds `capacity`, only the first
 * `capacity` ids are written. `before`: -1, or, if the text begins inside a word, the id of the
 * token before it: then no token marks the beginning of a word, and unknown characters join unknown
 * ones before them in one token, as in an undivided text. May be called from several threads.
 *
 * The library joins unknown characters by copying all that it has joined, for each of them: its
 * time grows with the square of their number. */
wd_status wd__spiece_encode(int32_t *ids, int64_t *count, int64_t capacity, const wd_spiece *spiece,
                            const char *text, size_t bytes, int32_t before, wd_err *err);

/* Checks a spiece.model before SentencePiece reads it (spiece_check.c). Returns WD_BAD_FORMAT,
 * naming `path`, for a model with which the library could access memory out of bounds: versions up
 * to 0.2.1 do not check the offsets in a model. WD_OK does not mean that the model is usable. */
wd_status wd__spiece_check(const void *model, size_t bytes, const char *path, wd_err *err);

#ifdef __cplusplus
}
#endif
#endif
