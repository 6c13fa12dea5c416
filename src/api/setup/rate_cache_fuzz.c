/* Fuzz target: any bytes as the file of measured rates. Rates that are read are above zero; a new
 * one is kept, whatever the file contains. */
#include "fuzzing.h"

#include <math.h>

#include "api/setup/rate_cache.h"

static double read_rate(const char *key)
{
    wd_rate_cache cache;
    wd_rate_cache_open(&cache);
    const double rate = wd_rate_cache_get(&cache, key);
    wd_rate_cache_close(&cache);
    if (!(rate >= 0 && isfinite(rate))) abort();
    return rate;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_rate_cache cache;
    setenv("XDG_CACHE_HOME", wd_fuzz_folder(), 1);
    wd_fuzz_file("wandistiller/rates.json", data, bytes);
    const double known = read_rate("disk");
    wd_rate_cache_open(&cache);
    const double best = wd_rate_cache_put(&cache, "disk", 5);
    wd_rate_cache_close(&cache);
    if (best < 5 || best < known || read_rate("disk") != best) abort();
    return 0;
}
