/* Rates are found again, the faster of two is kept, old ones are dropped, and without a folder
 * there is no cache. */
#include "api/setup/rate_cache.h"

#include "testing.h"

#include <stdlib.h>
#include <time.h>

static char file[512];

static int in_a_folder(void **state)
{
    (void)state;
    setenv("XDG_CACHE_HOME", wd_test_folder(), 1);
    snprintf(file, sizeof file, "%s/wandistiller/rates.json", wd_test_folder());
    return 0;
}

static double put(const char *key, double per_s)
{
    wd_rate_cache cache;
    wd_rate_cache_open(&cache);
    const double best = wd_rate_cache_put(&cache, key, per_s);
    wd_rate_cache_close(&cache);
    return best;
}

static double get(const char *key)
{
    wd_rate_cache cache;
    wd_rate_cache_open(&cache);
    const double per_s = wd_rate_cache_get(&cache, key);
    wd_rate_cache_close(&cache);
    return per_s;
}

static void the_faster_is_kept(void **state)
{
    (void)state;
    assert_true(get("a") == 0);
    assert_true(put("a", 1.5e9) == 1.5e9);
    assert_true(get("a") == 1.5e9);
    assert_true(put("a", 1e9) == 1.5e9);
    assert_true(put("a", 2e9) == 2e9);
    assert_true(put("b", 7) == 7);
    assert_true(get("a") == 2e9 && get("b") == 7);
}

static void write_entry(double per_s, int64_t measured)
{
    wd_err err;
    json_t *json = json_pack("{s:{s:{s:f, s:I}}}", "rates", "old", "per_s", per_s, "measured",
                             (json_int_t)measured);
    wd_test_ok(wd_json_save(json, file, &err), &err);
    json_decref(json);
}

static int64_t written_at(void)
{
    wd_err err;
    json_t *json;
    wd_test_ok(wd_json_load(&json, file, &err), &err);
    const json_t *entry = json_object_get(json_object_get(json, "rates"), "old");
    const int64_t at = json_integer_value(json_object_get(entry, "measured"));
    json_decref(json);
    return at;
}

static void old_ones_are_forgotten(void **state)
{
    (void)state;
    const int64_t now = time(NULL), day = 24 * 60 * 60;
    write_entry(5, now - day / 2);
    assert_true(get("old") == 5);
    write_entry(5, now - day / 2);
    assert_true(put("old", 3) == 5); /* the entry with 5 keeps its age */
    assert_true(written_at() == now - day / 2);
    write_entry(5, now - 2 * day);
    assert_true(get("old") == 0);
    assert_true(put("old", 3) == 3); /* the old entry with 5 is dropped */
    write_entry(5, now + day);       /* written by a clock that was wrong */
    assert_true(get("old") == 0);
}

/* No machine has such speeds; with them a plan's times would be endless or none. */
static void speeds_of_no_machine_are_dropped(void **state)
{
    (void)state;
    static const double wrong[] = {1e-308, 0, -5, 1e300};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_entry(wrong[i], time(NULL));
        assert_true(get("old") == 0);
    }
}

static void what_is_no_cache_is_none(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(wd_file_write(file, "{\"rates\": [", 11, &err), &err);
    assert_true(get("a") == 0);
    assert_true(put("a", 4) == 4 && get("a") == 4);
    setenv("XDG_CACHE_HOME", "/proc/none", 1);
    assert_true(put("a", 4) == 4 && get("a") == 0);
    setenv("XDG_CACHE_HOME", "", 1);
    unsetenv("HOME");
    assert_true(put("a", 4) == 4 && get("a") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_is_kept),
        cmocka_unit_test(old_ones_are_forgotten),
        cmocka_unit_test(speeds_of_no_machine_are_dropped),
        cmocka_unit_test(what_is_no_cache_is_none),
    };
    return cmocka_run_group_tests(tests, in_a_folder, NULL);
}
