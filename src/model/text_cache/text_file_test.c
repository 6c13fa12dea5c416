/* Other users may write to a file of the text cache after it was checked: the checked index stays
 * unchanged. */
#include "testing.h"

#include <fcntl.h>
#include <unistd.h>

#include "model/text_cache/text_file.h"

enum { PROMPTS = 3, ROWS = 6, WIDTH = 2 };

static const char key[] = "0123456789abcdef0123456789abcdef";

static void what_was_checked_is_not_read_again(void **state)
{
    (void)state;
    static const int64_t first[PROMPTS + 1] = {0, 1, 3, ROWS};
    const wd_text_hash hash[PROMPTS] = {{{1}}, {{2}}, {{3}}};
    const float row[ROWS * WIDTH] = {0};
    const wd_text_rows written = {hash, first, (const char *)row, PROMPTS, WIDTH, WD_F32, NULL};
    char path[WD_PATH_MAX], bytes[4096];
    wd_err err;
    wd_safetensors *set;
    wd_text_rows found = {.dtype = WD_F32, .text_dim = WIDTH};
    wd_test_ok(wd__text_file_write(path, wd_test_folder(), key, &written, &err), &err);
    wd_test_ok(wd__text_file_open(&set, &found, path, key, &err), &err);
    /* another process overwrites all mapped data */
    memset(bytes, 0x7f, sizeof bytes);
    const wd_safetensors_entry *e = wd_safetensors_find(set, "first");
    const uint64_t end = wd_safetensors_file_bytes(set);
    const int fd = open(path, O_WRONLY);
    const size_t left = (size_t)(end - e->file_offset);
    assert_int_equal(pwrite(fd, bytes, left, (off_t)e->file_offset), left);
    close(fd);
    assert_int_equal(*(const int8_t *)e->tensor.data, 0x7f);
    assert_int_equal(found.count, PROMPTS);
    assert_memory_equal(found.first, first, sizeof first);
    assert_memory_equal(found.hash, hash, sizeof hash);
    wd_free(found.index);
    wd_safetensors_close(set);
    /* such a file is not opened */
    wd_test_refused(wd__text_file_open(&set, &found, path, key, &err), &err, WD_BAD_FORMAT,
                    "is damaged");
    assert_null(found.index);
}

/* An index with rows outside of the file is refused, also with a correct checksum. */
static void rows_lie_one_behind_another(void **state)
{
    (void)state;
    static const int64_t hostile[][PROMPTS + 1] = {{0, 5, 3, ROWS},
                                                   {0, 1, 1, ROWS},
                                                   {0, 1, INT64_MAX, ROWS},
                                                   {0, INT64_MIN, 1, ROWS},
                                                   {1, 2, 3, ROWS}};
    const wd_text_hash hash[PROMPTS] = {{{4}}, {{5}}, {{6}}};
    const float row[ROWS * WIDTH] = {0};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        const wd_text_rows written = {hash,   hostile[i], (const char *)row, PROMPTS, WIDTH,
                                      WD_F32, NULL};
        char path[WD_PATH_MAX];
        wd_err err;
        wd_safetensors *set;
        wd_text_rows found = {.dtype = WD_F32, .text_dim = WIDTH};
        wd_test_ok(wd__text_file_write(path, wd_test_folder(), key, &written, &err), &err);
        wd_test_refused(wd__text_file_open(&set, &found, path, key, &err), &err, WD_BAD_FORMAT,
                        "is damaged");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_checked_is_not_read_again),
        cmocka_unit_test(rows_lie_one_behind_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
