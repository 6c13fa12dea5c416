/* Folder cli. The commands.
 *
 * The command line. It uses the public headers only; options, help, manual and completions come
 * from the option tables of the library. */
#ifndef WD_CLI_CLI_H
#define WD_CLI_CLI_H

#include <stdio.h>

#include "wandistiller.h"

enum { PATH_BYTES = 4096 }; /* PATH_MAX of Linux */

/* The parts of a command line that are not options of the job. */
typedef struct wd_cli_input {
    wd_common_options common;
    wd_config *config;           /* the file of --config, which owns strings of the options */
    char run_folder[PATH_BYTES]; /* of `train --resume FOLDER` without other options: its output
                                    folder */
    bool done;                   /* --help was printed, and there is nothing to run */
} wd_cli_input;

/* Fills `options` (the job's struct) with defaults, then with the file of --config, then with the
 * arguments, of which argv[0] is the command's name. Sends the log to stderr. The caller closes
 * *out, also after a failure. */
wd_status wd_cli_open(wd_cli_input *out, wd_job job, void *options, int argc, char **argv,
                      wd_err *err);
void wd_cli_close(wd_cli_input *input);

/* Prints a job's text, if there is one, and frees it. */
void wd_cli_print(char *text);

/* The commands: argv[0] is the command's name. */
#define X(JOB, job, summary) wd_status wd_cli_##job(int argc, char **argv, wd_err *err);
WD_JOB_MAP(X)
#undef X

void wd_cli_print_usage(FILE *to); /* of the program */
/* Of a command. all: false prints what most people need, where there are many options. */
void wd_cli_print_help(FILE *to, wd_job job, bool all);
void wd_cli_print_man(FILE *to);  /* wandistiller(1) */
void wd_cli_print_bash(FILE *to); /* completions */
void wd_cli_print_zsh(FILE *to);

/* Appends a formatted text to the one in `out`, a buffer of `out_bytes`; text that does not fit is
 * left out. */
void wd_cli_append(char *out, size_t out_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes the placeholder of an option's value ("PATH", "N", or the choices) into `out`; "" for a
 * flag. Returns `out`. */
const char *wd_cli_value_text(char *out, size_t out_bytes, const wd_option *option);

/* ---- progress ----
 *
 * The line of progress, which is drawn if standard error is a terminal; otherwise the library logs
 * lines of its own. */

void wd_cli_progress_begin(void); /* starts to draw if there is a terminal */
void wd_cli_progress_hide(void);  /* call it before printing something else */
void wd_cli_progress_end(void);

/* "training [####----]  45%  step 450/1000  loss 0.0123  3.1 steps/s  3:04 left", shorter than
 * `columns`, into `out`, and returns `out`. If a bar does not fit, it is left out. */
const char *wd_cli_progress_text(char *out, size_t out_bytes, int columns,
                                 const wd_progress *progress);

#endif
