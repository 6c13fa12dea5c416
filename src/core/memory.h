/* Host memory. Every allocation of the library goes through here, so that tests can make the n-th
 * one fail and count the ones of a steady-state step. */
#ifndef WD_CORE_MEMORY_H
#define WD_CORE_MEMORY_H

#include "core/error.h"

/* `count * size` zeroed bytes, 64-byte aligned; checks the product. errors name `what`. */
wd_status wd_alloc(void **out, size_t count, size_t size, const char *what, wd_err *err);

/* Grows or shrinks *block (may be NULL) to `count * size` bytes; new bytes are not cleared. On
 * failure *block stays as it was. */
wd_status wd_resize(void **block, size_t count, size_t size, const char *what, wd_err *err);

/* A copy of `text`. */
wd_status wd_copy_text(char **out, const char *text, wd_err *err);

/* Frees what the functions above gave; NULL is allowed. */
void wd_free(void *block);

/* Calls of wd_alloc, wd_resize and wd_copy_text so far in this process. */
int64_t wd_alloc_count(void);

/* Bytes of all blocks that the calling thread has been given and has not freed (a block counts with
 * the thread that allocates, resizes or frees it), and the most there were since the peak was
 * restarted: what a dry run shows of the host memory that the real one will take. */
int64_t wd_memory_held(void);
int64_t wd_memory_peak(void);
void wd_memory_restart_peak(void);

/* Counts a block of `bytes` that the calling thread was given elsewhere, such as pinned memory of a
 * driver, as much as one of wd_alloc, or, where `held` is false, takes it off the books again. */
void wd_memory_hold_elsewhere(size_t bytes, bool held);

/* While it is on, large blocks of the calling thread are given out even where the machine has less
 * memory: for a dry run, which writes to next to nothing of what it plans. */
void wd_memory_plan_only(bool on);

/* Call number `n` from now (1 = the next) fails with WD_OUT_OF_MEMORY, once; 0: none does. */
void wd_alloc_fail_at(int64_t n);

/* Call number `n` from now and every later one fail, until wd_alloc_fail_at says otherwise. */
void wd_alloc_fail_from(int64_t n);

#endif
