/* What ComfyUI demands of a workflow: every link joins an output and an input of its type, every
 * input of a node has a link, and a node has the values that its widgets take. */
#ifndef WD_TESTS_WORKFLOW_CHECK_H
#define WD_TESTS_WORKFLOW_CHECK_H

#include "testing.h"

#include <jansson.h>

/* Inputs and outputs (types, in order) and the number of values of each kind of node, as ComfyUI
 * defines them in nodes.py and comfy_extras/. */
static const struct {
    const char *type, *inputs, *output;
    size_t widgets;
} wd_test_nodes[] = {
    {"UNETLoader", "", "MODEL", 2},
    {"UnetLoaderGGUF", "", "MODEL", 1},
    {"CLIPLoader", "", "CLIP", 3},
    {"VAELoader", "", "VAE", 1},
    {"ModelSamplingSD3", "model:MODEL ", "MODEL", 1},
    {"CLIPTextEncode", "clip:CLIP ", "CONDITIONING", 1},
    {"EmptyHunyuanLatentVideo", "", "LATENT", 4},
    {"Wan22ImageToVideoLatent", "vae:VAE ", "LATENT", 4},
    {"KSampler", "model:MODEL positive:CONDITIONING negative:CONDITIONING latent_image:LATENT ",
     "LATENT", 7},
    {"VAEDecode", "samples:LATENT vae:VAE ", "IMAGE", 0},
    {"SaveImage", "images:IMAGE ", NULL, 1},
};

static inline const char *wd_test_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text) fail_msg("no text \"%s\"", key);
    return text;
}

static inline int64_t wd_test_int(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* The node of that id; NULL: there is none. */
static inline json_t *wd_test_node_of_id(const json_t *workflow, int64_t id)
{
    size_t i;
    json_t *node;
    json_array_foreach(json_object_get(workflow, "nodes"), i,
                       node) if (wd_test_int(node, "id") == id) return node;
    return NULL;
}

/* The only node of that type, or the first of several. */
static inline json_t *wd_test_node(const json_t *workflow, const char *type)
{
    size_t i;
    json_t *node;
    json_array_foreach(json_object_get(workflow, "nodes"), i,
                       node) if (!strcmp(wd_test_text(node, "type"), type)) return node;
    fail_msg("no node %s", type);
    return NULL;
}

static inline const json_t *wd_test_widget(const json_t *workflow, const char *type, size_t i)
{
    return json_array_get(json_object_get(wd_test_node(workflow, type), "widgets_values"), i);
}

static inline void wd_test_check_node(const json_t *workflow, const json_t *node)
{
    const char *type = wd_test_text(node, "type");
    const json_t *outputs = json_object_get(node, "outputs"), *input;
    char inputs[256] = "";
    size_t i, k = 0;
    const size_t kinds = sizeof wd_test_nodes / sizeof *wd_test_nodes;
    while (k < kinds && strcmp(wd_test_nodes[k].type, type)) k++;
    if (k == kinds) fail_msg("ComfyUI has no node %s", type);
    json_array_foreach(json_object_get(node, "inputs"), i, input)
    {
        snprintf(inputs + strlen(inputs), sizeof inputs - strlen(inputs), "%s:%s ",
                 wd_test_text(input, "name"), wd_test_text(input, "type"));
        assert_in_range(wd_test_int(input, "link"), 1, wd_test_int(workflow, "last_link_id"));
    }
    assert_string_equal(inputs, wd_test_nodes[k].inputs);
    assert_int_equal(json_array_size(outputs), wd_test_nodes[k].output != NULL);
    if (wd_test_nodes[k].output)
        assert_string_equal(wd_test_text(json_array_get(outputs, 0), "type"),
                            wd_test_nodes[k].output);
    assert_int_equal(json_array_size(json_object_get(node, "widgets_values")),
                     wd_test_nodes[k].widgets);
    assert_int_equal(json_array_size(json_object_get(node, "pos")), 2);
    assert_int_equal(json_array_size(json_object_get(node, "size")), 2);
}

/* A link [id, node, output, node, input, type]: both ends know it, by its type. */
static inline void wd_test_check_link(const json_t *workflow, const json_t *link)
{
    int64_t value[5];
    for (size_t i = 0; i < 5; i++) {
        assert_true(json_is_integer(json_array_get(link, i)));
        value[i] = json_integer_value(json_array_get(link, i));
    }
    const char *type = json_string_value(json_array_get(link, 5));
    const json_t *from = wd_test_node_of_id(workflow, value[1]);
    const json_t *to = wd_test_node_of_id(workflow, value[3]);
    assert_true(type && from && to);
    const json_t *output = json_array_get(json_object_get(from, "outputs"), (size_t)value[2]);
    const json_t *input = json_array_get(json_object_get(to, "inputs"), (size_t)value[4]);
    assert_true(output && input);
    assert_string_equal(wd_test_text(output, "type"), type);
    assert_string_equal(wd_test_text(input, "type"), type);
    assert_int_equal(wd_test_int(input, "link"), value[0]);
    bool listed = false;
    size_t i;
    json_t *id;
    json_array_foreach(json_object_get(output, "links"), i, id) listed =
        listed || json_integer_value(id) == value[0];
    assert_true(listed);
}

static inline void wd_test_check_workflow(const json_t *workflow)
{
    const json_t *nodes = json_object_get(workflow, "nodes");
    const json_t *links = json_object_get(workflow, "links");
    const json_t *item;
    size_t i, inputs = 0, outputs = 0;
    assert_true(json_is_real(json_object_get(workflow, "version")));
    assert_int_equal(json_array_size(nodes), wd_test_int(workflow, "last_node_id"));
    assert_int_equal(json_array_size(links), wd_test_int(workflow, "last_link_id"));
    json_array_foreach(nodes, i, item)
    {
        const json_t *output = json_array_get(json_object_get(item, "outputs"), 0);
        assert_ptr_equal(wd_test_node_of_id(workflow, wd_test_int(item, "id")), item);
        wd_test_check_node(workflow, item);
        inputs += json_array_size(json_object_get(item, "inputs"));
        outputs += json_array_size(json_object_get(output, "links"));
    }
    json_array_foreach(links, i, item)
    {
        assert_int_equal(json_integer_value(json_array_get(item, 0)), i + 1);
        wd_test_check_link(workflow, item);
    }
    assert_int_equal(inputs, json_array_size(links));
    assert_int_equal(outputs, json_array_size(links));
}

#endif
