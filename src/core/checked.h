/* Arithmetic on sizes that came from outside: false on overflow, with *out untouched. */
#ifndef WD_CORE_CHECKED_H
#define WD_CORE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool wd_mul_size(size_t *out, size_t a, size_t b)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool wd_add_size(size_t *out, size_t a, size_t b)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* `n` rounded up to a multiple of `unit` (a power of two); n must be far from SIZE_MAX. */
static inline size_t wd_round_up(size_t n, size_t unit)
{
    return (n + unit - 1) & ~(unit - 1);
}

#endif
