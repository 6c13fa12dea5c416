/* A cache of measured rates and bytes of memory for later runs, in
 * XDG_CACHE_HOME/wandistiller/rates.json or ~/.cache/wandistiller/rates.json. It makes later starts
 * quicker, and gives them the same plan.
 *
 * Other programs may use the machine during a measurement. So of two measurements the larger one is
 * kept, and `--measure_rates` on an idle machine corrects figures of a busy one. Entries are
 * dropped after a day, so that a wrong one does not stay. If the file cannot be read or written,
 * there is no cache. */
#ifndef WD_API_SETUP_RATE_CACHE_H
#define WD_API_SETUP_RATE_CACHE_H

#include "io/file/file.h"
#include "io/json/json.h"

enum { WD_RATE_KEY_MAX = 512 };

typedef struct wd_rate_cache {
    json_t *rates; /* key -> {per_s, measured}, without old entries */
    bool changed;
    char path[WD_PATH_MAX]; /* "": there is no folder for it */
} wd_rate_cache;

/* Opens the cache in *out. It cannot fail: a cache that cannot be read is empty. */
void wd_rate_cache_open(wd_rate_cache *out);

/* Writes the file if there are new entries, and closes the cache. */
void wd_rate_cache_close(wd_rate_cache *cache);

/* The known value, per second or in bytes; 0: unknown. */
double wd_rate_cache_get(const wd_rate_cache *cache, const char *key);

/* Adds a measurement; returns the larger of it and the known value. */
double wd_rate_cache_put(wd_rate_cache *cache, const char *key, double per_s);

#endif
