/* The cache of rates: see api/setup/rate_cache.h. */
#include "api/setup/rate_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/log.h"

enum { SECONDS_KEPT = 24 * 60 * 60 };

static void find_path(char path[WD_PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *path = 0;
    if (cache && *cache == '/')
        snprintf(path, WD_PATH_MAX, "%s/wandistiller/rates.json", cache);
    else if (home && *home == '/')
        snprintf(path, WD_PATH_MAX, "%s/.cache/wandistiller/rates.json", home);
}

/* Speeds outside of this are of no machine: a plan with them would have endless or no time. */
static const double per_s_min = 1, per_s_max = 1e21;

/* The number under `name`; 0: there is none. */
static double number_of(const json_t *entry, const char *name)
{
    return json_number_value(json_object_get(entry, name));
}

static bool is_known(const json_t *entry, double now)
{
    const double age = now - number_of(entry, "measured");
    const double per_s = number_of(entry, "per_s");
    return per_s >= per_s_min && per_s <= per_s_max && age >= 0 && age < SECONDS_KEPT;
}

void wd_rate_cache_open(wd_rate_cache *out)
{
    const char *key;
    json_t *file = NULL, *entry;
    *out = (wd_rate_cache){.rates = json_object()};
    find_path(out->path);
    if (!*out->path || !wd_path_exists(out->path)) return;
    if (wd_json_load(&file, out->path, NULL) != WD_OK) return;
    json_object_foreach(json_object_get(file, "rates"), key, entry)
    {
        if (is_known(entry, (double)time(NULL))) json_object_set(out->rates, key, entry);
    }
    json_decref(file);
}

static wd_status save(const wd_rate_cache *cache)
{
    char folder[WD_PATH_MAX];
    wd_status status = wd_path_beside(folder, cache->path, "", NULL);
    if (status == WD_OK) status = wd_folder_make(folder, NULL);
    if (status != WD_OK) return status;
    json_t *file = json_pack("{s:i, s:O}", "version", 1, "rates", cache->rates);
    status = wd_json_save(file, cache->path, NULL);
    json_decref(file);
    return status;
}

void wd_rate_cache_close(wd_rate_cache *cache)
{
    if (cache->changed && *cache->path && save(cache) != WD_OK)
        wd_log(WD_LOG_DEBUG, "%s: rates could not be written there", cache->path);
    json_decref(cache->rates);
    cache->rates = NULL;
}

double wd_rate_cache_get(const wd_rate_cache *cache, const char *key)
{
    return number_of(json_object_get(cache->rates, key), "per_s");
}

double wd_rate_cache_put(wd_rate_cache *cache, const char *key, double per_s)
{
    const double known = wd_rate_cache_get(cache, key);
    if (known >= per_s) return known; /* the entry keeps its age */
    json_object_set_new(
        cache->rates, key,
        json_pack("{s:f, s:I}", "per_s", per_s, "measured", (json_int_t)time(NULL)));
    cache->changed = true;
    return per_s;
}
