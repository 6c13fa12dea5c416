/* A run as the command that begins it, ready to paste. */
#ifndef WD_API_TRAIN_COMMAND_H
#define WD_API_TRAIN_COMMAND_H

#include "wandistiller.h"

/* "wandistiller train --teacher_path ... ": what differs from the defaults, quoted for a shell.
 * Pasted, it gives the same options. Where it is too long "wandistiller train ..." is all. */
void wd_train_command(char *out, size_t out_bytes, const wd_train_options *options);

#endif
