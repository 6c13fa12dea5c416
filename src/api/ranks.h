/* The ranks of a run: what options and environment say of them, and their communicator. */
#ifndef WD_API_RANKS_H
#define WD_API_RANKS_H

#include "dist/comm.h"

/* Opens the communicator of a run: that of all ranks under --distributed, else a single one. Refuses
 * what launcher and options do not agree on, with the line to run instead. All ranks call it. */
wd_status wd_ranks_open(wd_comm **out, const wd_train_options *options, wd_err *err);

#endif
