/* `inspect` describes the content of a model folder or file, as tables or as JSON. */
#include "api/options/json_text.h"
#include "api/options/parts.h"
#include "core/stop.h"
#include "model/convert/inspect.h"
#include "wandistiller.h"

wd_status wd_inspect(char **text, const wd_inspect_options *options, wd_err *err)
{
    json_t *tree;
    WD_TRY(wd_options_check(WD_JOB_INSPECT, options, err));
    wd_stop_begin();
    wd_pipeline_parts parts = WD_PARTS_OF(options);
    const char *path = options->path;
    const bool loras = parts.lora[0] || parts.lora[1];
    const bool is_file = path && wd_path_exists(path) && !wd_path_is_folder(path);
    if (loras && is_file) {
        parts.part[WD_COMPONENT_TRANSFORMER] = path; /* which LoRAs are for */
        path = NULL;
    }
    const bool any =
        wd_parts_any(&parts) || parts.preset || loras || (parts.ignores_unknown && !is_file);
    WD_TRY(wd_inspect_tree(&tree, path, any ? &parts : NULL, err));
    const wd_status status =
        options->json ? wd_json_text_of(text, tree, err) : wd_inspect_text(text, tree, err);
    json_decref(tree);
    return status;
}
