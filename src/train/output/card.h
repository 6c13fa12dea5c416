/* The model card of an exported student. */
#ifndef WD_TRAIN_OUTPUT_CARD_H
#define WD_TRAIN_OUTPUT_CARD_H

#include "train/output/export_options.h"

/* Writes <folder>/README.md. */
wd_status wd__student_write_card(const char *folder, const wd_params *params,
                                 const wd_export_options *options, wd_err *err);

#endif
