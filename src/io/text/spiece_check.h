/* Checks a spiece.model before SentencePiece reads it. */
#ifndef WD_IO_TEXT_SPIECE_CHECK_H
#define WD_IO_TEXT_SPIECE_CHECK_H

#ifdef __cplusplus
extern "C" {
#endif

#include "core/error.h"

/* Returns WD_BAD_FORMAT, naming `path`, for a model with which the library could access memory out
 * of bounds: versions up to 0.2.1 do not check the offsets in a model. WD_OK does not mean that the
 * model is usable. */
wd_status wd__spiece_check(const void *model, size_t bytes, const char *path, wd_err *err);

#ifdef __cplusplus
}
#endif
#endif
