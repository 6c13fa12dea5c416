/* Reads a transformer that is one file without a configuration: finds its naming, and its shape. */
#ifndef WD_MODEL_DIT_DIT_FILE_H
#define WD_MODEL_DIT_DIT_FILE_H

#include "io/tensors/safetensors.h"
#include "model/tables/dit_table.h"
#include "model/tables/naming.h"

/* The key of the metadata under which this program stores the configuration. Without it the
 * configuration follows from the tensors' shapes, except for the number of heads: that is read from
 * a config.json in the same folder, else heads of 128 are assumed, as in every published model. */
#define WD_DIT_FILE_CONFIG_KEY "wandistiller.config"

typedef struct wd_dit_file {
    const wd_safetensors *set; /* borrowed */
    wd_naming naming;
    wd_dit_config config;
    bool heads_known; /* false: config has one head as wide as the model */
} wd_dit_file;

/* Whether the set looks like a Wan transformer; fills all but the configuration. */
bool wd__dit_file_detect(wd_dit_file *out, const wd_safetensors *set);

/* WD_UNSUPPORTED if the set is no Wan text-to-video transformer. All tensors are checked. */
wd_status wd_dit_file_read(wd_dit_file *out, const wd_safetensors *set, wd_err *err);

/* Finds a tensor by its diffusers name; NULL: there is none. */
const wd_safetensors_entry *wd_dit_file_find(const wd_dit_file *file, const char *diffusers_name);

#endif
