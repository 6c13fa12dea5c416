/* `inspect`: what is in a model folder or file, as tables or as JSON. */
#include <stdlib.h>

#include "core/memory.h"
#include "core/stop.h"
#include "wan/inspect.h"

/* jansson's text, in memory of ours with a line end behind it. */
static wd_status dump(char **out, const json_t *tree, wd_err *err)
{
    const size_t bytes = json_dumpb(tree, NULL, 0, JSON_INDENT(2));
    WD_TRY(wd_alloc((void **)out, bytes + 2, 1, "JSON text", err));
    json_dumpb(tree, *out, bytes, JSON_INDENT(2));
    (*out)[bytes] = '\n';
    return WD_OK;
}

wd_status wd_inspect(char **text, const wd_inspect_options *options, wd_err *err)
{
    json_t *tree;
    WD_TRY(wd_options_check(WD_JOB_INSPECT, options, err));
    wd_stop_forget();
    WD_TRY(wd_inspect_tree(&tree, options->path, err));
    const wd_status status =
        options->json ? dump(text, tree, err) : wd_inspect_text(text, tree, err);
    json_decref(tree);
    return status;
}
