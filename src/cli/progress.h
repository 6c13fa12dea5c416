/* The line of progress, which is drawn if standard error is a terminal; otherwise the library logs
 * lines of its own. */
#ifndef WD_CLI_PROGRESS_H
#define WD_CLI_PROGRESS_H

#include "cli/cli.h"

void wd_cli_progress_begin(void); /* starts to draw if there is a terminal */
void wd_cli_progress_hide(void);  /* call it before printing something else */
void wd_cli_progress_end(void);

/* "training [####----]  45%  step 450/1000  loss 0.0123  3.1 steps/s  3:04 left", shorter than
 * `columns`, into `out`, and returns `out`. If a bar does not fit, it is left out. */
const char *wd_cli_progress_text(char *out, size_t out_bytes, int columns,
                                 const wd_progress *progress);

#endif
