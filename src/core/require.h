/* Checks that every build makes, release builds too: for counts, sizes and indices that another
 * module computed and that memory safety depends on. What comes from outside (files, options,
 * sockets) is never checked with this, but answered with a wd_err. assert() remains for what only a
 * debug build needs to check. */
#ifndef WD_CORE_REQUIRE_H
#define WD_CORE_REQUIRE_H

/* Ends the process with one line that names the place and the message if `condition` is false. */
#define WD_REQUIRE(condition, ...)                                                                 \
    ((condition) ? (void)0 : wd_require_failed(__FILE__, __LINE__, __VA_ARGS__))

/* Writes "wandistiller: internal error at FILE:LINE: MESSAGE ..." to standard error and aborts. */
_Noreturn void wd_require_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
