/* The names in a folder. */
#ifndef WD_IO_FILE_FOLDER_LIST_H
#define WD_IO_FILE_FOLDER_LIST_H

#include <dirent.h>

#include "core/error.h"

typedef struct wd_folder_list {
    struct dirent **entry; /* [count], each with its d_name; scandir's memory */
    int count;
} wd_folder_list;

/* Lists the entries of `folder` for which `filter` returns 1, in the order of `compare` (arguments
 * as of scandir). A missing folder has no entries. */
wd_status wd_folder_list_open(wd_folder_list *out, const char *folder,
                              int (*filter)(const struct dirent *),
                              int (*compare)(const struct dirent **, const struct dirent **),
                              wd_err *err);
void wd_folder_list_close(wd_folder_list *list); /* a zeroed list is allowed */

#endif
