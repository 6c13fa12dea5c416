/* Workflows: see model/convert/workflow.h.
 *
 * Names of nodes, of their inputs and outputs, and the order of the values of their widgets are
 * those of ComfyUI's nodes.py, comfy_extras/nodes_hunyuan.py, nodes_model_advanced.py and
 * nodes_wan.py, and of ComfyUI-GGUF's nodes.py. */
#include "model/convert/workflow.h"

#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "io/json/json.h"
#include "io/text/prompts.h"

enum { INPUTS = 4, LINKS_MAX = 16 };

enum { UNET, CLIP, VAE, SHIFT, PROMPT, NEGATIVE, LATENT, SAMPLER, DECODE, SAVE, NODES };

typedef struct input {
    const char *name, *type;
    int from; /* node */
} input;

typedef struct node {
    const char *type, *title;
    int x, y, width, height;
    input input[INPUTS];
    const char *output, *output_name; /* type, name; NULL: none */
} node;

static const node nodes[NODES] = {
    [UNET] = {"UNETLoader", "Load Diffusion Model", 0, 0, 320, 82, {{0}}, "MODEL", "MODEL"},
    [CLIP] = {"CLIPLoader", "Load CLIP", 0, 130, 320, 106, {{0}}, "CLIP", "CLIP"},
    [VAE] = {"VAELoader", "Load VAE", 0, 290, 320, 58, {{0}}, "VAE", "VAE"},
    [SHIFT] = {"ModelSamplingSD3",
               "ModelSamplingSD3",
               360,
               0,
               260,
               58,
               {{"model", "MODEL", UNET}},
               "MODEL",
               "MODEL"},
    [PROMPT] = {"CLIPTextEncode",
                "Prompt",
                360,
                110,
                420,
                160,
                {{"clip", "CLIP", CLIP}},
                "CONDITIONING",
                "CONDITIONING"},
    [NEGATIVE] = {"CLIPTextEncode",
                  "Negative prompt (not used at cfg 1)",
                  360,
                  320,
                  420,
                  100,
                  {{"clip", "CLIP", CLIP}},
                  "CONDITIONING",
                  "CONDITIONING"},
    [LATENT] = {"EmptyHunyuanLatentVideo", "Size", 360, 470, 320, 130, {{0}}, "LATENT", "LATENT"},
    [SAMPLER] = {"KSampler",
                 "KSampler",
                 820,
                 0,
                 320,
                 262,
                 {{"model", "MODEL", SHIFT},
                  {"positive", "CONDITIONING", PROMPT},
                  {"negative", "CONDITIONING", NEGATIVE},
                  {"latent_image", "LATENT", LATENT}},
                 "LATENT",
                 "LATENT"},
    [DECODE] = {"VAEDecode",
                "VAE Decode",
                820,
                310,
                220,
                46,
                {{"samples", "LATENT", SAMPLER}, {"vae", "VAE", VAE}},
                "IMAGE",
                "IMAGE"},
    [SAVE] =
        {"SaveImage", "Save Image", 1180, 0, 420, 420, {{"images", "IMAGE", DECODE}}, NULL, NULL},
};

/* The latents of 48 channels come from a node of their own, which asks the VAE for them. */
static const node latent_48 = {"Wan22ImageToVideoLatent", "Size",   360,     470, 320, 150,
                               {{"vae", "VAE", VAE}},     "LATENT", "LATENT"};

/* ComfyUI-GGUF's node for a transformer in a GGUF file. */
static const node unet_gguf = {
    "UnetLoaderGGUF", "Unet Loader (GGUF)", 0, 0, 320, 58, {{0}}, "MODEL", "MODEL"};

static const node *node_of(const wd_workflow *w, int i)
{
    if (i == UNET && w->unet_is_gguf) return &unet_gguf;
    return i == LATENT && w->latent_channels == 48 ? &latent_48 : &nodes[i];
}

/* ---- the prompt in ComfyUI's syntax ----
 *
 * Two programs read what stands in a prompt's node. The page in the browser removes comments, takes
 * one text of each {a|b} and the backslash from in front of { } and | (processDynamicPrompt of
 * ComfyUI's frontend); there a backslash protects whatever follows it. Then comfy/sd1_clip.py reads
 * parentheses as weights, except those with a backslash in front (escape_important,
 * parse_parentheses), and "embedding:name" as the name of a file. Neither cleans a text as
 * diffusers' pipeline and this program do. */

static const char protected[] = "(){}|";

/* The backslashes that end text[0, at). */
static size_t backslashes_before(const char *text, size_t at)
{
    size_t n = 0;
    while (n < at && text[at - n - 1] == '\\') n++;
    return n;
}

/* What in a cleaned prompt ComfyUI reads in its own way, where it has no escape for it; NULL:
 * nothing. */
static const char *without_escape(const char *prompt)
{
    static const char embedding[] = "embedding:";
    const char *begin = strstr(prompt, "/*"), *brace = prompt;
    if (strstr(prompt, "//")) return "//";
    if (begin && strstr(begin + 2, "*/")) return "/*";
    if (!strncmp(prompt, embedding, strlen(embedding)) || strstr(prompt, " embedding:"))
        return embedding;
    for (; (brace = strchr(brace, '{')); brace++)
        if (backslashes_before(prompt, (size_t)(brace - prompt)) % 2) return "\\{";
    return NULL;
}

/* Cleans a prompt, and writes it so that ComfyUI reads the same text. The caller calls wd_free. */
static wd_status write_for_comfyui(char **out, const char *prompt, wd_err *err)
{
    char *clean = NULL;
    void *block = NULL;
    size_t used = 0;
    WD_TRY(wd_prompt_clean(&clean, prompt, err));
    const size_t bytes = strlen(clean);
    const wd_status status = wd_alloc(&block, 2 * bytes + 2, 1, "a prompt", err);
    for (size_t i = 0; i < bytes && status == WD_OK; i++) {
        if (strchr(protected, clean[i])) ((char *)block)[used++] = '\\';
        ((char *)block)[used++] = clean[i];
    }
    if (status == WD_OK && backslashes_before(clean, bytes) % 2)
        ((char *)block)[used] = ' '; /* else it would protect what comes behind the end */
    const char *trap = without_escape(clean);
    if (status == WD_OK && trap)
        wd_log(WD_LOG_WARNING,
               "the workflow's prompt has \"%s\", which means something to ComfyUI and cannot be "
               "written otherwise: the picture there is not that of this prompt; change the text "
               "of the node \"Prompt\"",
               trap);
    wd_free(clean);
    *out = block;
    return status;
}

/* ---- nodes and links ---- */

static json_t *widgets_of(const wd_workflow *w, int i)
{
    switch (i) {
    case UNET:
        if (w->unet_is_gguf) return json_pack("[o]", wd_json_string(w->unet));
        return json_pack("[o, s]", wd_json_string(w->unet), "default");
    case CLIP:
        return json_pack("[o, s, s]", wd_json_string(w->clip), "wan", "default");
    case VAE:
        return json_pack("[o]", wd_json_string(w->vae));
    case SHIFT:
        return json_pack("[f]", w->shift);
    case PROMPT:
        return json_pack("[o]", wd_json_string(w->prompt));
    case NEGATIVE:
        return json_pack("[s]", "");
    case LATENT: /* length: pictures have one frame */
        return json_pack("[I, I, i, i]", (json_int_t)w->width, (json_int_t)w->height, 1, 1);
    case SAMPLER:
        return json_pack("[i, s, I, f, s, s, f]", 0, "randomize", (json_int_t)w->steps, w->cfg,
                         w->sampler, "simple", 1.0);
    case SAVE:
        return json_pack("[s]", "WanDistiller");
    default:
        return json_array();
    }
}

/* Adds the inputs of node i, and a link for each of them. */
static json_t *inputs_of(const wd_workflow *w, int i, json_t *links)
{
    const node *n = node_of(w, i);
    json_t *list = json_array();
    for (int k = 0; k < INPUTS && n->input[k].name; k++) {
        const input *in = &n->input[k];
        const int id = (int)json_array_size(links) + 1;
        json_array_append_new(
            links, json_pack("[i, i, i, i, i, s]", id, in->from + 1, 0, i + 1, k, in->type));
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:i}", "name", in->name, "type", in->type, "link", id));
    }
    return list;
}

/* The outputs of node i: its links are those that begin there. */
static json_t *outputs_of(const wd_workflow *w, int i, const json_t *links)
{
    const node *n = node_of(w, i);
    json_t *list = json_array(), *own = json_array(), *link;
    size_t k;
    json_array_foreach(links, k, link) if (json_integer_value(json_array_get(link, 1)) == i + 1)
        json_array_append(own, json_array_get(link, 0));
    if (!n->output) {
        json_decref(own);
        return list;
    }
    json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:i}", "name", n->output_name, "type",
                                          n->output, "links", own, "slot_index", 0));
    return list;
}

static json_t *describe(const wd_workflow *w, int i, json_t *inputs, const json_t *links)
{
    const node *n = node_of(w, i);
    return json_pack("{s:i, s:s, s:s, s:[i, i], s:[i, i], s:{}, s:i, s:i, s:o, s:o, s:{s:s}, s:o}",
                     "id", i + 1, "type", n->type, "title", n->title, "pos", n->x, n->y, "size",
                     n->width, n->height, "flags", "order", i, "mode", 0, "inputs", inputs,
                     "outputs", outputs_of(w, i, links), "properties", "Node name for S&R", n->type,
                     "widgets_values", widgets_of(w, i));
}

static json_t *make_graph(const wd_workflow *w)
{
    json_t *inputs[NODES], *links = json_array(), *list = json_array();
    for (int i = 0; i < NODES; i++) inputs[i] = inputs_of(w, i, links);
    for (int i = 0; i < NODES; i++) json_array_append_new(list, describe(w, i, inputs[i], links));
    const size_t count = json_array_size(list), last = json_array_size(links);
    json_t *graph = json_pack("{s:i, s:I, s:o, s:o, s:[], s:{}, s:{}, s:f}", "last_node_id", NODES,
                              "last_link_id", (json_int_t)last, "nodes", list, "links", links,
                              "groups", "config", "extra", "version", 0.4);
    if (count == NODES) return graph;
    json_decref(graph);
    return NULL;
}

wd_status wd_workflow_make(json_t **out, const wd_workflow *workflow, wd_err *err)
{
    char *prompt = NULL;
    wd_workflow w = *workflow;
    wd_json_watch_memory();
    json_t *text = wd_json_string(w.prompt); /* in UTF-8 */
    if (!text) return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for a workflow");
    const wd_status status = write_for_comfyui(&prompt, json_string_value(text), err);
    json_decref(text);
    if (status != WD_OK) return status;
    w.prompt = prompt;
    *out = make_graph(&w);
    wd_free(prompt);
    if (*out && !wd_json_lacked_memory()) return WD_OK;
    json_decref(*out);
    *out = NULL;
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for a workflow");
}
