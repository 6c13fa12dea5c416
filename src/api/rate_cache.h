/* Measured rates, and bytes of memory, kept from run to run:
 * XDG_CACHE_HOME/wandistiller/rates.json, or the same in ~/.cache. So a second start is quicker,
 * and its plan is that of the first.
 *
 * Others may load a machine while it is measured: of two measurements the larger is kept, so that
 * `--measure_rates` on a quiet machine puts right what was measured on a busy one. What is a day
 * old is forgotten, so that no mistake lives long. A cache that cannot be read or written is
 * none. */
#ifndef WD_API_RATE_CACHE_H
#define WD_API_RATE_CACHE_H

#include "io/file.h"
#include "io/json.h"

enum { WD_RATE_KEY_MAX = 512 };

typedef struct wd_rate_cache {
    json_t *rates; /* key -> {per_s, measured}: what is not too old */
    bool changed;
    char path[WD_PATH_MAX]; /* "": there is no place for it */
} wd_rate_cache;

/* In place; always open afterwards. */
void wd_rate_cache_open(wd_rate_cache *out);

/* Writes it where something is new, and closes it. */
void wd_rate_cache_close(wd_rate_cache *cache);

/* What is known, per second, or in bytes; 0: nothing. */
double wd_rate_cache_get(const wd_rate_cache *cache, const char *key);

/* Adds a measurement; returns the larger of it and what is known. */
double wd_rate_cache_put(wd_rate_cache *cache, const char *key, double per_s);

#endif
