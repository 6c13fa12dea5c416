/* The line of progress: drawn where standard error is a terminal; elsewhere the library logs lines
 * of its own. */
#ifndef WD_CLI_PROGRESS_H
#define WD_CLI_PROGRESS_H

#include "cli/cli.h"

void wd_cli_progress_begin(void); /* draws from now on, where there is a terminal */
void wd_cli_progress_hide(void);  /* before something else is printed */
void wd_cli_progress_end(void);

/* "training [####----]  45%  step 450/1000  loss 0.0123  3.1 steps/s  3:04 left", shorter than
 * `columns`, into `out`; returns it. Without room for a bar it has none. */
const char *wd_cli_progress_text(char *out, size_t out_bytes, int columns,
                                 const wd_progress *progress);

#endif
