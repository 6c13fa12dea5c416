/* A shell reads the words back as the original text, and the words can be printed. */
#include "core/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "core/terminal_safe.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shell_reads_the_text_back),
        cmocka_unit_test(what_needs_no_quotes_has_none),
        cmocka_unit_test(a_buffer_that_is_too_small_is_not_passed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
