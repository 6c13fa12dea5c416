/* Messages that are logged once. */
#include "testing.h"

#include "core/log.h"

static int heard;

static void hear(void *context, wd_log_level level, const char *message)
{
    (void)context, (void)level, (void)message;
    heard++;
}

/* A listener hears the same message once; another message, and another listener, count anew. */
static void once(void **state)
{
    (void)state;
    wd_log_to(hear, NULL, WD_LOG_WARNING);
    for (int i = 0; i < 3; i++) wd_log_once(WD_LOG_WARNING, "file %s", "a");
    assert_int_equal(heard, 1);
    for (int i = 0; i < 3; i++) wd_log_once(WD_LOG_WARNING, "file %s", "b");
    assert_int_equal(heard, 2);
    for (int i = 0; i < 2; i++) wd_log(WD_LOG_WARNING, "file %s", "b");
    assert_int_equal(heard, 4);
    wd_log_to(hear, NULL, WD_LOG_WARNING);
    wd_log_once(WD_LOG_WARNING, "file %s", "a");
    assert_int_equal(heard, 5);
    for (int i = 0; i < 16; i++) wd_log_once(WD_LOG_WARNING, "file %d", i);
    wd_log_once(WD_LOG_WARNING, "file %d", 15);
    assert_int_equal(heard, 21);
    wd_log_to(NULL, NULL, WD_LOG_WARNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
