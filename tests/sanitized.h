/* Whether the program is built with a sanitizer that replaces malloc, so that measurements of
 * memory are not valid. */
#ifndef WD_TESTS_SANITIZED_H
#define WD_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WD_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WD_TEST_SANITIZED 1
#endif
#endif
#ifndef WD_TEST_SANITIZED
#define WD_TEST_SANITIZED 0
#endif

#endif
