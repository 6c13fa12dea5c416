/* Checks a spiece.model before SentencePiece reads it. */
#ifndef WD_IO_SPIECE_CHECK_H
#define WD_IO_SPIECE_CHECK_H

#ifdef __cplusplus
extern "C" {
#endif

#include "core/error.h"

/* WD_BAD_FORMAT, naming `path`, for a model that could lead the library out of its memory: versions
 * up to 0.2.1 believe offsets that the model states. Says nothing of whether it is a good model. */
wd_status wd_spiece_check(const void *model, size_t bytes, const char *path, wd_err *err);

#ifdef __cplusplus
}
#endif
#endif
