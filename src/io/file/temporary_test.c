/* Temporary files in a folder that other users may write to: as soon as a file is created, this
 * test replaces its name by a link to another file of the user. */
#include "io/file/file.h"

#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "io/tensors/safetensors.h"

static char victim[WD_PATH_MAX], target[WD_PATH_MAX], source[WD_PATH_MAX];
static int replaced;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    const bool makes = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
    const int fd = __real_open(path, flags, makes ? va_arg(list, unsigned) : 0);
    va_end(list);
    const size_t n = strlen(path);
    if (fd < 0 || !(flags & O_EXCL) || n < 4 || strcmp(path + n - 4, ".tmp")) return fd;
    if (!unlink(path) && !symlink(victim, path)) replaced++;
    return fd;
}

int __wrap_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);

/* As where files without a name cannot get one: all have names from the beginning. */
int __wrap_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    (void)from_folder, (void)from, (void)to_folder, (void)to, (void)flags;
    errno = EPERM;
    return -1;
}

static int prepare(void **state)
{
    (void)state;
    snprintf(victim, sizeof victim, "%s/victim", wd_test_folder());
    snprintf(target, sizeof target, "%s/target", wd_test_folder());
    snprintf(source, sizeof source, "%s/source", wd_test_folder());
    for (int i = 0; i < 2; i++) {
        const char *path = i ? source : victim;
        const int fd = __real_open(path, O_WRONLY | O_CREAT, 0600);
        if (fd < 0 || write(fd, "mine", 4) != 4 || close(fd)) return 1;
    }
    return 0;
}

static void assert_untouched(void)
{
    char *text;
    size_t bytes;
    wd_err err;
    wd_test_ok(wd_file_read(&text, &bytes, victim, 64, &err), &err);
    assert_string_equal(text, "mine");
    wd_free(text);
    assert_int_equal(replaced, 1);
    replaced = 0;
}

static void files_are_written_to_what_was_made(void **state)
{
    (void)state;
    wd_err err;
    assert_int_equal(wd_file_write(target, "text", 4, &err), WD_IO);
    assert_untouched();
}

static void copies_are_written_to_what_was_made(void **state)
{
    (void)state;
    wd_err err;
    assert_int_equal(wd_file_copy(target, source, &err), WD_IO);
    assert_untouched();
}

static void weights_are_written_to_what_was_made(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors_writer *writer;
    const char byte = 1;
    const wd_safetensors_item item = {"weight", WD_U8, 1, {1}};
    wd_test_ok(wd_safetensors_create_unnamed(&writer, target, &item, 1, NULL, &err), &err);
    wd_test_ok(wd_safetensors_put(writer, &byte, 1, &err), &err);
    assert_int_equal(wd_safetensors_finish(writer, &err), WD_IO);
    assert_untouched();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_written_to_what_was_made),
        cmocka_unit_test(copies_are_written_to_what_was_made),
        cmocka_unit_test(weights_are_written_to_what_was_made),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
