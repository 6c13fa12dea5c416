/* Progress as a user sees it: one line that is written again on a terminal, lines elsewhere. */
#include "runs.h"

#include <poll.h>
#include <sys/ioctl.h>

static wd_program program;

/* Runs the program with standard error on a terminal of 100 columns; what came there, in `out`. */
static void run_on_terminal(char *out, size_t bytes, const char *const *arguments)
{
    const char *argv[64] = {WD_PROGRAM};
    int n = 1, status = 0;
    size_t used = 0;
    pid_t pid;
    const struct winsize size = {.ws_row = 40, .ws_col = 100};
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    const int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && ioctl(terminal, TIOCSWINSZ, &size) == 0);
    while (*arguments && n < 63) argv[n++] = *arguments++;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, terminal, 2);
    assert_int_equal(
        posix_spawn(&pid, WD_PROGRAM, &actions, NULL, (char **)(uintptr_t)argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(terminal);
    for (ssize_t got; used < bytes - 1 && (got = read(master, out + used, bytes - 1 - used)) > 0;)
        used += (size_t)got;
    out[used] = 0;
    close(master);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("%s", out);
}

/* What a terminal shows in the end, line by line: "\r" goes back, "\033[K" clears what is behind.
 */
static void render(char *screen, size_t bytes, const char *text)
{
    size_t begin = 0, at = 0, end = 0;
    for (; *text && end < bytes - 2; text++) {
        if (*text == '\r') {
            at = begin;
        } else if (!strncmp(text, "\033[K", 3)) {
            end = at;
            text += 2;
        } else if (*text == '\n') {
            screen[end++] = '\n';
            begin = at = end;
        } else {
            screen[at++] = *text;
            if (at > end) end = at;
        }
    }
    screen[end] = 0;
}

#define TRAIN(out)                                                                                 \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--student_config", wd_test_path("student.json"), "--output_dir", wd_test_path(out),       \
        "--height", "32", "--width", "32", "--num_steps", "5", "--save_samples", "--sample_steps", \
        "2"

static void a_terminal_has_one_line(void **state)
{
    (void)state;
    static char text[1 << 18], screen[1 << 18];
    setenv("TERM", "xterm", 1);
    run_on_terminal(text, sizeof text, (const char *const[]){TRAIN("bar"), NULL});
    static const char *const parts[] = {"\rencoding prompts", "\rloading weights",
                                        "\rtraining [",       "\rdrawing the teacher's samples [",
                                        "\rdecoding",         "\rdrawing the student's samples ["};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i])) fail_msg("\"%s\" lacks \"%s\"", text, parts[i]);
    assert_non_null(strstr(text, "100%  step 5/5  loss "));
    render(screen, sizeof screen, text);
    assert_non_null(strstr(screen, "\ndone after 5 steps"));
    if (strstr(screen, "training [") || strstr(screen, "drawing"))
        fail_msg("progress is left on the screen: %s", screen);
    run_on_terminal(text, sizeof text,
                    (const char *const[]){"sample", "--model", teacher, "--prompt", "fox", "--out",
                                          wd_test_path("fox.png"), "--steps", "2", NULL});
    if (!strstr(text, "\rdrawing [") || !strstr(text, "100%  step 2/2")) fail_msg("%s", text);
    run_on_terminal(text, sizeof text,
                    (const char *const[]){TRAIN("quiet"), "--log_level", "warning", NULL});
    assert_string_equal(text, "");
}

static void elsewhere_are_lines(void **state)
{
    (void)state;
    static char text[1 << 16];
    wd_program_run(&program, TRAIN("lines"));
    wd_program_succeeded(&program);
    assert_null(strchr(program.err, '\r'));
    assert_null(strchr(program.err, '\033'));
    assert_non_null(strstr(program.err, "\ndone after 5 steps"));
    setenv("TERM", "dumb", 1); /* a terminal that cannot go back */
    run_on_terminal(text, sizeof text, (const char *const[]){TRAIN("dumb"), NULL});
    assert_null(strchr(text, '\033'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_has_one_line),
        cmocka_unit_test(elsewhere_are_lines),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
