/* The names in a folder: see io/file/folder_list.h. */
#include "io/file/folder_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

wd_status wd_folder_list_open(wd_folder_list *out, const char *folder,
                              int (*filter)(const struct dirent *),
                              int (*compare)(const struct dirent **, const struct dirent **),
                              wd_err *err)
{
    *out = (wd_folder_list){0};
    out->count = scandir(folder, &out->entry, filter, compare);
    if (out->count >= 0) return WD_OK;
    out->count = 0;
    if (errno == ENOENT) return WD_OK;
    return wd_fail(err, WD_IO, "%s: cannot be listed: %s", folder, strerror(errno));
}

void wd_folder_list_close(wd_folder_list *list)
{
    for (int i = 0; i < list->count; i++) free(list->entry[i]); /* scandir's */
    free(list->entry);
    *list = (wd_folder_list){0};
}
