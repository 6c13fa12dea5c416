/* The needs of a run's prompts: the number of rows of text that are computed, and the memory to
 * encode them. */
#ifndef WD_API_TEXT_PLAN_H
#define WD_API_TEXT_PLAN_H

#include "api/train_setup.h"
#include "distill/plan.h"

/* Opens the embeddings of *setup, which tokenizes all prompts. Sets the number of text rows of its
 * machine: as many as the prompts need, or, for a resumed run, as many as it began with. Adds to
 * *plan the memory of encoding the prompts that the cache lacks on device number `device`. */
wd_status wd_text_plan(wd_memory_plan *plan, wd_train_setup *setup, wd_devices *devices, int device,
                       wd_err *err);

/* Adds the memory of encoding to *plan, with embeddings that are open. */
wd_status wd_text_plan_encoding(wd_memory_plan *plan, const wd_train_setup *setup,
                                const wd_devices *devices, int device, wd_err *err);

#endif
