/* Functions that all readers of configurations use. Internal to model/tables/config*.c. */
#ifndef WD_MODEL_TABLES_CONFIG_READ_H
#define WD_MODEL_TABLES_CONFIG_READ_H

#include "model/tables/config.h"

/* Checks that the string under `key` is `expected`; another one is WD_UNSUPPORTED, and the error
 * names it. */
wd_status wd__config_check_class(wd_json_reader r, const char *key, const char *expected,
                                 wd_json_need need, wd_err *err);

/* What to say of a class that is refused, behind its name: what it is and what to take instead; "":
 * nothing is known. */
const char *wd_config_class_hint(const char *class_name);

/* Refuses "quantization_config", by which diffusers and transformers say that the weights are not
 * what their dtypes say. */
wd_status wd__config_refuse_quantised(wd_json_reader r, wd_err *err);

/* Refuses the first of `count` keys that is neither absent nor null, false, 0 or []. */
wd_status wd__config_refuse_set(wd_json_reader r, const char *const *keys, size_t count,
                                wd_err *err);

#endif
