/* All files of a model in many shards are known by name. */
#include "io/file/mapped.h"

#include "testing.h"
#include "wandistiller_status.h"

enum { FILES = 5000 };

static void many_files_are_known(void **state)
{
    (void)state;
    static char place[FILES], path[FILES][16];
    char found[64];
    for (int i = 0; i < FILES; i++) {
        snprintf(path[i], sizeof path[i], "shard-%d", i);
        wd_mapped_note(&place[i], 1, path[i]);
    }
    for (int i = 0; i < FILES; i += 499) {
        assert_true(wd_mapped_file_at(found, sizeof found, &place[i]));
        assert_string_equal(found, path[i]);
    }
    for (int i = 0; i < FILES; i++) wd_mapped_forget(&place[i]);
    assert_false(wd_mapped_file_at(found, sizeof found, &place[FILES - 1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_files_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
