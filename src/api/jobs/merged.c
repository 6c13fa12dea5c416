/* See api/jobs/merged.h. */
#include "api/jobs/merged.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/stop.h"
#include "core/temporary_folder.h"

static const char prefix[] = "wandistiller-loras-";

wd_status wd__merged_make_folder(wd_merged *out, wd_err *err)
{
    const char *above = getenv("TMPDIR");
    if (!above || !*above) above = "/tmp";
    wd_temporary_folder_remove_abandoned(above, prefix);
    out->lock = wd_temporary_folder_make(out->folder, sizeof out->folder, above, prefix);
    if (out->lock >= 0) {
        wd_stop_hold(1);
        return WD_OK;
    }
    *out->folder = '\0';
    return wd_fail(err, WD_IO,
                   "%s: no folder for the weights with their LoRAs can be made there: %s; let "
                   "TMPDIR be a folder with space for them",
                   above, strerror(errno));
}

wd_status wd__merged_open(wd_merged *out, wd_pipeline *p, wd_dtype dtype, wd_err *err)
{
    *out->folder = '\0';
    if (!p->lora[0] && !p->lora[1]) return WD_OK;
    WD_TRY(wd__merged_make_folder(out, err));
    p->overlay = (wd_overlay){.folder = out->folder, .dtype = dtype};
    return wd_pipeline_make_overlay(p, err);
}

void wd__merged_close(wd_merged *merged)
{
    if (!*merged->folder) return;
    wd_temporary_folder_remove(merged->folder);
    close(merged->lock);
    wd_stop_hold(-1);
    *merged->folder = '\0';
}
