/* Messages and pages contain no character that a terminal obeys, text in buffers of fixed size does
 * not overrun them, and a shell reads words back as the original text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "core/error.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"

/* Escape, 8-bit escape, right-to-left override, carriage return, a byte that is not UTF-8. */
#define HOSTILE                                                                                    \
    "a\x1b[2Jb\xc2\x9b"                                                                            \
    "c\xe2\x80\xae"                                                                                \
    "d\re\xff"                                                                                     \
    "f"
#define PLAIN "a?[2Jb?c?d?e?f"

static void what_a_terminal_obeys_is_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {HOSTILE, PLAIN},
        {"line one\n\tline two", "line one\n\tline two"},
        {"\xc3\xa9\xe6\x97\xa5\xf0\x9f\x90\xb1", "\xc3\xa9\xe6\x97\xa5\xf0\x9f\x90\xb1"},
        {"\xd7\xa9\xd7\x9c", "\xd7\xa9\xd7\x9c"}, /* Hebrew needs no marks */
        {"\xe2\x81\xa6x\xe2\x81\xa9\x7f\xd8\x9c", "?x???"},
        {"\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80", "?????????"}, /* not UTF-8 */
        {"\xe0\x81\x81\xf0\x80\x81\x81", "???????"},           /* overlong forms of "A" */
        {"cut \xe6\x97", "cut ??"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        strcpy(text, cases[i].text);
        wd_make_terminal_safe(text);
        assert_string_equal(text, cases[i].expected);
    }
}

static void hear(void *context, wd_log_level level, const char *message)
{
    (void)level;
    strcpy(context, message);
}

static void whatever_leaves_is_plain(void **state)
{
    (void)state;
    char heard[256] = "", *text;
    wd_err err;
    wd_log_to(hear, heard, WD_LOG_INFO);
    wd_log(WD_LOG_INFO, "found \"%s\"", HOSTILE);
    wd_log_to(NULL, NULL, WD_LOG_INFO);
    assert_string_equal(heard, "found \"" PLAIN "\"");
    wd_fail(&err, WD_BAD_FORMAT, "found \"%s\"", HOSTILE);
    assert_string_equal(err.message, "found \"" PLAIN "\"");
    wd_fail_in(&err, "%s", HOSTILE);
    assert_string_equal(err.message, PLAIN ": found \"" PLAIN "\"");
    wd_text_builder builder = {.err = &err};
    wd_text_builder_say(&builder, "name %s\n", HOSTILE);
    assert_int_equal(wd_text_builder_take(&text, &builder), WD_OK);
    assert_string_equal(text, "name " PLAIN "\n");
    wd_free(text);
}

static void appended_text_stays_in_its_buffer(void **state)
{
    (void)state;
    char out[8];
    memset(out, 'x', sizeof out);
    size_t used = wd_append_text(out, 6, 0, "%s", "ab");
    assert_int_equal(used, 2);
    used = wd_append_text(out, 6, used, "%s", "cdefghij");
    assert_int_equal(used, 5);
    assert_string_equal(out, "abcde");
    assert_int_equal(wd_append_text(out, 6, used, "%d", 7), 5);
    assert_string_equal(out, "abcde");
    assert_memory_equal(out + 6, "xx", 2);
}

static void a_line_ends_where_a_control_does(void **state)
{
    (void)state;
    assert_int_equal(wd_terminal_safe_bytes("name\nwandistiller: done", 23, 100), 4);
    assert_int_equal(wd_terminal_safe_bytes("na\xc3\xafve", 6, 100), 6);
    assert_int_equal(wd_terminal_safe_bytes("name", 4, 3), 3);
    assert_int_equal(wd_terminal_safe_bytes("a\x7f", 2, 100), 1);
    assert_int_equal(wd_terminal_safe_bytes("", 0, 100), 0);
}

static const char *const texts[] = {"student",
                                    "./outputs/run-1",
                                    "sim:4x24GiB@link=25GB/s",
                                    "",
                                    " ",
                                    "two words",
                                    "it's",
                                    "''",
                                    "$(touch /tmp/never)",
                                    "`id`",
                                    "a\\b",
                                    "*",
                                    "~",
                                    "=ls",
                                    "!x",
                                    "a;b|c&d>e",
                                    "\xc3\xa9\xe6\x97\xa5",
                                    "line\nbreak",
                                    "tab\there",
                                    "\x1b]0;title\x07",
                                    "not UTF-8: \xff'\\",
                                    "right to left \xe2\x80\xae",
                                    "-",
                                    "#"};

/* Runs bash, which understands $'...'; printf prints the word that bash has read. */
static void a_shell_reads_the_text_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char word[256], plain[256], command[512], found[256];
        wd_shell_word(word, sizeof word, texts[i]);
        strcpy(plain, word);
        wd_make_terminal_safe(plain);
        assert_string_equal(word, plain);
        snprintf(command, sizeof command, "exec bash -c \"$(cat <<'END'\nprintf %%s %s\nEND\n)\"",
                 word);
        FILE *shell = popen(command, "r");
        assert_non_null(shell);
        found[fread(found, 1, sizeof found - 1, shell)] = 0;
        assert_int_equal(pclose(shell), 0);
        assert_string_equal(found, texts[i]);
    }
}

static void what_needs_no_quotes_has_none(void **state)
{
    (void)state;
    char word[64];
    assert_string_equal(wd_shell_word(word, sizeof word, "out/run-1"), "out/run-1");
    assert_string_equal(wd_shell_word(word, sizeof word, "a fox"), "'a fox'");
    assert_string_equal(wd_shell_word(word, sizeof word, "it's"), "'it'\\''s'");
    assert_string_equal(wd_shell_word(word, sizeof word, "a\nb"), "'a\nb'");
    assert_string_equal(wd_shell_word(word, sizeof word, "a\rb'"), "$'a\\015b\\047'");
}

/* The longest words come from quotes and from escaped bytes. */
static void a_buffer_that_is_too_small_is_not_passed(void **state)
{
    (void)state;
    char word[WD_SHELL_WORD_BYTES(3) + 1];
    memset(word, 'x', sizeof word);
    assert_string_equal(wd_shell_word(word, WD_SHELL_WORD_BYTES(3), "'''"), "''\\'''\\'''\\'''");
    assert_int_equal(word[WD_SHELL_WORD_BYTES(3)], 'x');
    assert_string_equal(wd_shell_word(word, WD_SHELL_WORD_BYTES(3), "\r\r\r"),
                        "$'\\015\\015\\015'");
    assert_string_equal(wd_shell_word(word, WD_SHELL_WORD_BYTES(3) - 1, "abc"), "");
    word[0] = 'x';
    wd_shell_word(word, 0, "abc");
    assert_int_equal(word[0], 'x');
}

static void weights_are_millions_or_billions(void **state)
{
    (void)state;
    char text[WD_WEIGHTS_TEXT];
    assert_string_equal(wd_weights_text(text, 671000), "0.671 million");
    assert_string_equal(wd_weights_text(text, 999499999), "999 million");
    assert_string_equal(wd_weights_text(text, 999500000), "1 billion");
    assert_string_equal(wd_weights_text(text, 1418996800), "1.42 billion");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_terminal_obeys_is_replaced),
        cmocka_unit_test(whatever_leaves_is_plain),
        cmocka_unit_test(appended_text_stays_in_its_buffer),
        cmocka_unit_test(weights_are_millions_or_billions),
        cmocka_unit_test(a_line_ends_where_a_control_does),
        cmocka_unit_test(a_shell_reads_the_text_back),
        cmocka_unit_test(what_needs_no_quotes_has_none),
        cmocka_unit_test(a_buffer_that_is_too_small_is_not_passed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
