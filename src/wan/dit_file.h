/* A transformer that is one file without a configuration: which names it uses, and what shape it
 * has. */
#ifndef WD_WAN_DIT_FILE_H
#define WD_WAN_DIT_FILE_H

#include "io/safetensors.h"
#include "wan/dit_table.h"
#include "wan/naming.h"

/* Key of the metadata in which this program puts the configuration. Shapes tell all of it but the
 * number of heads; a file without it is taken to have heads of 128, as every published model does,
 * or those that a config.json beside it states. */
#define WD_DIT_FILE_CONFIG_KEY "wandistiller.config"

typedef struct wd_dit_file {
    const wd_safetensors *set; /* borrowed */
    wd_naming naming;
    wd_dit_config config;
    bool heads_known; /* else config has one head as wide as the model */
} wd_dit_file;

/* Whether the set looks like a Wan transformer; fills all but the configuration. */
bool wd_dit_file_detect(wd_dit_file *out, const wd_safetensors *set);

/* WD_UNSUPPORTED if the set is no Wan text-to-video transformer. All tensors are checked. */
wd_status wd_dit_file_read(wd_dit_file *out, const wd_safetensors *set, wd_err *err);

/* The entry of a tensor, by its diffusers name; NULL: there is none. */
const wd_safetensors_entry *wd_dit_file_find(const wd_dit_file *file, const char *diffusers_name);

#endif
