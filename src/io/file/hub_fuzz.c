/* Fuzz target: any text as a model's name, and any bytes as a reference of the Hub cache. The first
 * line is the name, the rest is the file refs/main of org/model. No reference leads out of the
 * folder of snapshots. */
#include "fuzzing.h"

#include "io/file/hub.h"

#define REPOSITORY "hub/models--org--model"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char name[256], snapshots[512], hub[512], out[WD_PATH_MAX];
    wd_err err;
    const uint8_t *line_end = bytes ? memchr(data, '\n', bytes) : NULL;
    const size_t length = line_end ? (size_t)(line_end - data) : bytes;
    const size_t rest = line_end ? length + 1 : length;
    if (length >= sizeof name) return 0;
    memcpy(name, data, length);
    name[length] = '\0';
    wd_fuzz_file(REPOSITORY "/snapshots/0123abcd/model_index.json", (const uint8_t *)"{}", 2);
    wd_fuzz_file(REPOSITORY "/refs/main", data + rest, bytes - rest);
    snprintf(hub, sizeof hub, "%s", wd_fuzz_path("hub"));
    snprintf(snapshots, sizeof snapshots, "%s", wd_fuzz_path(REPOSITORY "/snapshots"));
    setenv("HF_HUB_CACHE", hub, 1);
    if (wd_path_exists(name) || wd_hub_find(out, name, &err) != WD_OK) return 0;
    if (!wd_path_is_folder(out) || !wd_path_is_inside(out, snapshots)) abort();
    return 0;
}
