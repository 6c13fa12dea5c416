/* Checks in every build, release builds included, of counts, sizes and indices that another module
 * computed and on which memory safety depends. Input from outside (files, options, sockets) is
 * never checked with this; a wrong one is reported by a wd_err. Conditions that only a debug build
 * needs to check use assert(). */
#ifndef WD_CORE_REQUIRE_H
#define WD_CORE_REQUIRE_H

/* Ends the process with one line that names the place and the message if `condition` is false. */
#define WD_REQUIRE(condition, ...)                                                                 \
    ((condition) ? (void)0 : wd__require_failed(__FILE__, __LINE__, __VA_ARGS__))

/* Writes "wandistiller: internal error at FILE:LINE: MESSAGE ..." to standard error and aborts. */
_Noreturn void wd__require_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
