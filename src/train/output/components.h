/* The teacher's components that become part of the student's folder: VAE, text encoder, tokenizer.
 *
 * A student's folder is made to be published, and a teacher's folder may come from anywhere. So
 * only files that diffusers and transformers read by name are taken, and a symbolic link is
 * followed only within the model's folder or to the Hub cache's blobs of the same model. */
#ifndef WD_TRAIN_OUTPUT_COMPONENTS_H
#define WD_TRAIN_OUTPUT_COMPONENTS_H

#include <sys/types.h>

#include "model/files/pipeline.h"

/* How the weights get into the student's folder. LINK: hard links, which take no space and stay
 * good when the teacher or the student is moved or deleted; where they cannot be made (another file
 * system), files below 64 MiB are copied, and larger ones are linked symbolically by absolute path,
 * of which the log warns. COPY: always copied. Configurations and vocabularies are always copied,
 * so that editing them in one folder leaves the other as it is. */
typedef enum wd_export_components { WD_EXPORT_LINK, WD_EXPORT_COPY } wd_export_components;

/* Checks, without writing anything, that all that wd_components_take takes is there: weights are
 * opened and compared with their configuration, symbolic links are followed. */
wd_status wd_components_check(const wd_pipeline *teacher, wd_err *err);

/* *bytes = what wd_components_take would write on the file system `device` (st_dev): files that are
 * copied, and weights of single files, which are converted. Of quantised weights it is an upper
 * bound. */
wd_status wd_components_size(uint64_t *bytes, const wd_pipeline *teacher, wd_export_components how,
                             dev_t device, wd_err *err);

/* Writes the three components' folders into the folder `to`, which exists. */
wd_status wd_components_take(const char *to, const wd_pipeline *teacher, wd_export_components how,
                             wd_err *err);

#endif
