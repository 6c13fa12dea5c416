/* Space is reserved for files while signals arrive. This test replaces fallocate() by one that
 * behaves as Linux up to 6.10 does on a tmpfs. */
#include "core/file_space.h"

#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A signal arrives whenever this many bytes were reserved; the call that it ends reserves nothing.
 */
enum { SIGNAL_BYTES = 40 << 20, BLOCK = 512 };
static int64_t until_signal; /* bytes; negative: none comes */
static int refused_with;     /* errno of the next calls; 0: none */

int __real_fallocate(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes);

int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes)
{
    if (refused_with) {
        errno = refused_with;
        return -1;
    }
    if (until_signal >= 0 && bytes > until_signal) {
        until_signal = SIGNAL_BYTES;
        errno = EINTR;
        return -1;
    }
    if (until_signal >= 0) until_signal -= bytes;
    return __real_fallocate(fd, mode, at, bytes);
}

static void signals_do_not_keep_space_from_being_taken(void **state)
{
    (void)state;
    enum { BYTES = (200 << 20) + 12345 };
    struct stat is;
    const int fd = memfd_create("space", MFD_CLOEXEC);
    assert_true(fd >= 0);
    until_signal = SIGNAL_BYTES;
    assert_int_equal(wd_file_take_space(fd, BYTES), 0);
    until_signal = -1;
    assert_int_equal(fstat(fd, &is), 0);
    assert_int_equal(is.st_size, BYTES);
    assert_true((int64_t)is.st_blocks * BLOCK >= BYTES);
    close(fd);
}

static void other_errors_are_told(void **state)
{
    (void)state;
    static const int errors[] = {ENOSPC, EOPNOTSUPP};
    const int fd = memfd_create("space", MFD_CLOEXEC);
    for (int i = 0; i < 2; i++) {
        refused_with = errors[i];
        assert_int_equal(wd_file_take_space(fd, 1), errors[i]);
    }
    refused_with = 0;
    assert_int_equal(wd_file_take_space(fd, 0), 0);
    close(fd);
    assert_int_equal(wd_file_take_space(fd, 1), EBADF);
}

/* Other files need not be removed for a file that is too long. */
static void a_full_disk_is_told_from_a_limit(void **state)
{
    (void)state;
    static const struct {
        int error;
        bool lacked, full;
    } cases[] = {
        {ENOSPC, true, true}, {EDQUOT, true, true}, {EFBIG, true, false}, {EIO, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_file_space_watch();
        wd_file_space_note(cases[i].error);
        assert_int_equal(wd_file_space_lacked(), cases[i].lacked);
        assert_int_equal(wd_file_space_full(), cases[i].full);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_do_not_keep_space_from_being_taken),
        cmocka_unit_test(other_errors_are_told),
        cmocka_unit_test(a_full_disk_is_told_from_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
