/* The needs of a run's prompts: the device that encodes them, the number of rows of text that are
 * computed, and the memory to encode them.
 *
 * Without a map the first device of every rank encodes, where it has room for the most that
 * encoding can take, whatever the prompts and the state of the cache. Nothing else is on a device
 * meanwhile, so this follows from the text encoder and the device alone, and not from the strategy:
 * a GPU's embeddings differ from a processor's in the last bits, and so do the students. */
#ifndef WD_API_PLAN_ENCODING_PLAN_H
#define WD_API_PLAN_ENCODING_PLAN_H

#include "api/plan/teacher_map.h"
#include "api/setup/train_setup.h"
#include "train/loop/memory_plan.h"

/* Chooses the device that encodes the prompts: that of the map, or the first one, or the processor
 * if that has no room, cannot compute it, or is of another kind on another rank, or if the resumed
 * run was begun so. A processor that is chosen instead of another device is logged with the reason.
 * Opens the embeddings of *setup, which tokenizes all prompts. Sets the number of text rows of its
 * machine: as many as the prompts need, or, for a resumed run, as many as it began with. Adds to
 * *plan the memory of encoding the prompts that the cache lacks. All ranks call it. */
wd_status wd_encoding_plan(wd_memory_plan *plan, wd_train_setup *setup, wd_devices *devices,
                           wd_teacher_map *map, wd_err *err);

/* Adds the memory of encoding on device number `device` to *plan, with embeddings that are open: of
 * prompts that the cache lacks, or, on a device with other bits than they have, the most that
 * encoding can take. */
wd_status wd__encoding_plan_memory(wd_memory_plan *plan, const wd_train_setup *setup,
                                   const wd_devices *devices, int device, wd_err *err);

#endif
