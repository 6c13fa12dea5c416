/* Whether jansson has got the memory that it asked for. It does not say so itself: strings that it
 * could not copy are called invalid, and characters for which a buffer could not grow are dropped.
 */
#ifndef WD_IO_JSON_JSON_MEMORY_H
#define WD_IO_JSON_JSON_MEMORY_H

#include <stdbool.h>

/* From now on failed allocations of jansson in this thread are noted; earlier ones are forgotten.
 * jansson's functions (json_set_alloc_funcs) become ones that call those which it had. */
void wd_json_watch_memory(void);

/* Whether one has failed since then. */
bool wd_json_lacked_memory(void);

#endif
