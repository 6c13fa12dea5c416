/* The names in a folder. */
#ifndef WD_IO_FOLDER_LIST_H
#define WD_IO_FOLDER_LIST_H

#include <dirent.h>

#include "core/error.h"

typedef struct wd_folder_list {
    struct dirent **entry; /* [count], each with its d_name; scandir's memory */
    int count;
} wd_folder_list;

/* The entries of `folder` for which `filter` says 1, in the order of `compare` (as scandir takes
 * them). A folder that is not there has none. */
wd_status wd_folder_list_open(wd_folder_list *out, const char *folder,
                              int (*filter)(const struct dirent *),
                              int (*compare)(const struct dirent **, const struct dirent **),
                              wd_err *err);
void wd_folder_list_close(wd_folder_list *list); /* a zeroed one is fine */

#endif
