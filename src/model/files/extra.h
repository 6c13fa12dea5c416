/* Tensors of a file that a model's table does not have. */
#ifndef WD_MODEL_FILES_EXTRA_H
#define WD_MODEL_FILES_EXTRA_H

#include "io/tensors/safetensors.h"
#include "model/tables/naming.h"

/* Refuses tensors that are neither in the table nor harmless (buffers that follow from nothing but
 * the configuration, other parts of an all-in-one file, a T5 decoder): a model that has them is
 * another one, which computes something else with them. `ignores` makes this a warning in the log,
 * but not for tensors of an architecture that is known. `naming`: how the set's tensors were
 * named before they got the table's names. */
wd_status wd_extra_check(const wd_safetensors *set, const wd_tensor_table *table,
                         const wd_naming *naming, wd_component component, bool ignores,
                         wd_err *err);

#endif
