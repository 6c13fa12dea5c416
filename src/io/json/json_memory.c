/* Failed allocations of jansson: see io/json/json_memory.h.
 *
 * The functions are set when the program is loaded, since other threads may use jansson later, and
 * again if somebody has set others. */
#include "io/json/json_memory.h"

#include <pthread.h>
#include <stddef.h>

#include <jansson.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static json_malloc_t below; /* what jansson had before */
static _Thread_local bool lacked;

static void *noting(size_t bytes)
{
    void *block = below(bytes);
    lacked = lacked || (!block && bytes);
    return block;
}

__attribute__((constructor)) static void set_functions(void)
{
    json_malloc_t allocate;
    json_free_t release;
    pthread_mutex_lock(&lock);
    json_get_alloc_funcs(&allocate, &release);
    if (allocate != noting) {
        below = allocate;
        json_set_alloc_funcs(noting, release);
    }
    pthread_mutex_unlock(&lock);
}

void wd_json_watch_memory(void)
{
    set_functions();
    lacked = false;
}

bool wd_json_lacked_memory(void)
{
    return lacked;
}
