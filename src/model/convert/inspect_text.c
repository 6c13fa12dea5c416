/* The text of `inspect`: see model/convert/inspect.h. It is made from the tree alone. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/tensor.h"
#include "core/text.h"
#include "io/json/json.h"
#include "model/convert/inspect.h"

enum { TENSORS_SHOWN_MAX = 200, TIMESTEPS_DEFAULT = 1000 };

static int64_t number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

/* Formats 1418996800 as "1,418,996,800". */
static const char *grouped(char out[32], int64_t value)
{
    char digits[24];
    size_t n = (size_t)snprintf(digits, sizeof digits, "%" PRId64, value), used = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0 && digits[i - 1] != '-') out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

/* Formats bytes in the unit with one to three digits before the point: "2.84 GB". */
static const char *sized(char out[32], int64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 999.5 && unit < 5; unit++) value /= 1000;
    if (unit == 0)
        snprintf(out, 32, "%" PRId64 " B", bytes);
    else
        snprintf(out, 32, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, units[unit]);
    return out;
}

static void say_dtypes(wd_text_builder *p, const json_t *dtypes)
{
    const char *dtype, *comma = "";
    json_t *counts;
    json_object_foreach((json_t *)dtypes, dtype, counts)
    {
        wd_text_builder_say(p, "%s%" PRId64 " %s", comma, number(counts, "tensors"), dtype);
        comma = ", ";
    }
}

static void say_components(wd_text_builder *p, const json_t *components)
{
    const char *name;
    json_t *c;
    char a[32], b[32], d[32], e[32], f[32];
    wd_text_builder_say(p, "\n%-14s %-26s %7s %15s %9s %27s\n", "", "", "", "", "", "in memory");
    wd_text_builder_say(p, "%-14s %-26s %7s %15s %9s %9s %9s %9s  %s\n", "component", "class",
                        "tensors", "parameters", "on disk", "stored", "bfloat16", "float32",
                        "dtypes");
    json_object_foreach((json_t *)components, name, c)
    {
        const json_t *memory = json_object_get(c, "bytes_in_memory");
        if (!memory) {
            wd_text_builder_say(p, "%-14s %s", name, text(c, "class"));
        } else {
            wd_text_builder_say(p, "%-14s %-26s", name, text(c, "class"));
            wd_text_builder_say(
                p, " %7" PRId64 " %15s %9s %9s %9s %9s  ", number(c, "tensors"),
                grouped(a, number(c, "parameters")), sized(b, number(c, "bytes_on_disk")),
                sized(d, number(memory, "stored")), sized(e, number(memory, "bfloat16")),
                sized(f, number(memory, "float32")));
            say_dtypes(p, json_object_get(c, "dtypes"));
        }
        wd_text_builder_say(p, "\n");
    }
}

static bool same_stage(const json_t *a, const json_t *b)
{
    /* "block 3" and "block 4" differ only in the number */
    size_t n = strcspn(text(a, "name"), "0123456789");
    return a && b && n && !strncmp(text(a, "name"), text(b, "name"), n) && text(a, "name")[n] &&
           text(b, "name")[n] && number(a, "tensors") == number(b, "tensors") &&
           number(a, "parameters") == number(b, "parameters") &&
           number(a, "bytes") == number(b, "bytes");
}

/* Prints the table of stages; a run of equal stages is one line. */
static void say_stages(wd_text_builder *p, const char *component, const json_t *stages)
{
    char name[96], a[32], b[32];
    size_t count = json_array_size(stages);
    if (!count) return;
    snprintf(name, sizeof name, "layers of %s", component);
    wd_text_builder_say(p, "\n%-26s %7s %15s %9s\n", name, "tensors", "parameters", "stored");
    for (size_t i = 0, last; i < count; i = last + 1) {
        const json_t *stage = json_array_get(stages, i);
        for (last = i; same_stage(stage, json_array_get(stages, last + 1)); last++) {
        }
        const char *own = text(stage, "name"), *end = text(json_array_get(stages, last), "name");
        if (last > i)
            snprintf(name, sizeof name, "%s to %s, each", own, end + strcspn(end, "0123456789"));
        else
            snprintf(name, sizeof name, "%s", own);
        wd_text_builder_say(p, "  %-24s %7" PRId64 " %15s %9s\n", name, number(stage, "tensors"),
                            grouped(a, number(stage, "parameters")),
                            sized(b, number(stage, "bytes")));
    }
}

/* Prints keys and values of a configuration, several per line, without names of classes and
 * versions. */
static void say_config(wd_text_builder *p, const char *component, const json_t *config)
{
    enum { COLUMNS = 96 };
    const char *key;
    json_t *value;
    char item[160], shown[96];
    size_t column = COLUMNS;
    wd_text_builder_say(p, "\n%s", component);
    json_object_foreach((json_t *)config, key, value)
    {
        if (key[0] == '_' || json_is_object(value)) continue;
        const size_t n = wd_append_text(item, sizeof item, 0, "%.*s %s", WD_TERMINAL_SAFE(key, 60),
                                        wd_json_show(shown, sizeof shown, value));
        column += n + 2;
        wd_text_builder_say(p, "%s%s", column > COLUMNS ? "\n  " : ", ", item);
        if (column > COLUMNS) column = 2 + n;
    }
    wd_text_builder_say(p, "\n");
}

static void say_pipeline(wd_text_builder *p, const json_t *tree)
{
    const json_t *boundary = json_object_get(tree, "boundary_ratio");
    char a[32], b[32];
    wd_text_builder_say(p, "%s parameters, %s of weights on disk\n",
                        grouped(a, number(tree, "parameters")),
                        sized(b, number(tree, "bytes_on_disk")));
    if (strcmp(text(tree, "kind"), "pipeline")) return;
    if (json_is_real(boundary)) {
        const json_t *scheduler = json_object_get(json_object_get(tree, "components"), "scheduler");
        int64_t steps = number(json_object_get(scheduler, "config"), "num_train_timesteps");
        double ratio = json_real_value(boundary);
        wd_text_builder_say(
            p, "experts: two; transformer for timesteps from %g up, transformer_2 below\n",
            ratio * (double)(steps ? steps : TIMESTEPS_DEFAULT));
    } else {
        wd_text_builder_say(p, "experts: one\n");
    }
    wd_text_builder_say(p, "prompts: up to %" PRId64 " tokens\n", number(tree, "prompt_tokens"));
    wd_text_builder_say(p,
                        "pictures: %" PRId64 "x%" PRId64
                        " (width x height) by default, both multiples of %" PRId64 "\n",
                        number(tree, "default_width"), number(tree, "default_height"),
                        number(tree, "size_multiple"));
}

static const char *shape_text(char *out, size_t out_bytes, const json_t *shape)
{
    int64_t dim[WD_DIMS_MAX] = {0};
    const int ndim = (int)json_array_size(shape);
    WD_REQUIRE(ndim <= WD_DIMS_MAX, "a tensor of %d dimensions is described", ndim);
    for (int d = 0; d < ndim; d++) dim[d] = json_integer_value(json_array_get(shape, (size_t)d));
    return wd_dims_text(out, out_bytes, dim, ndim);
}

static void say_tensors(wd_text_builder *p, const json_t *tree)
{
    const json_t *list = json_object_get(tree, "tensor_list"), *line;
    char a[32], b[32], shape[256];
    size_t i;
    wd_text_builder_say(p, "%" PRId64 " tensors, %s values, %s on disk: ", number(tree, "tensors"),
                        grouped(a, number(tree, "parameters")),
                        sized(b, number(tree, "bytes_on_disk")));
    say_dtypes(p, json_object_get(tree, "dtypes"));
    wd_text_builder_say(p, "\n\n");
    json_array_foreach(list, i, line)
    {
        if (i == TENSORS_SHOWN_MAX) {
            wd_text_builder_say(p, "  ... and %zu more\n", json_array_size(list) - i);
            return;
        }
        wd_text_builder_say(p, "  %-48s %-5s %s\n", text(line, "name"), text(line, "dtype"),
                            shape_text(shape, sizeof shape, json_object_get(line, "shape")));
    }
}

/* Whether the second expert's tables would only repeat the first one's. */
static bool same_shape(const json_t *components)
{
    const json_t *a = json_object_get(json_object_get(components, "transformer"), "stages");
    const json_t *b = json_object_get(json_object_get(components, "transformer_2"), "stages");
    return a && b && json_equal(a, b);
}

/* A transformer by itself is only described, also one that all other commands refuse. */
static void say_other_kind(wd_text_builder *p, const json_t *components)
{
    const json_t *config = json_object_get(json_object_get(components, "transformer"), "config");
    const json_t *in = json_object_get(config, "in_channels");
    const json_t *out = json_object_get(config, "out_channels");
    if (json_is_integer(in) && json_is_integer(out) && !json_equal(in, out))
        wd_text_builder_say(p,
                            "an image-to-video or control model, %" JSON_INTEGER_FORMAT
                            " channels in, %" JSON_INTEGER_FORMAT
                            " out: all other commands take text-to-video models only\n",
                            json_integer_value(in), json_integer_value(out));
}

wd_status wd_inspect_text(char **out, const json_t *tree, wd_err *err)
{
    wd_text_builder p = {.status = WD_OK, .err = err};
    const json_t *components = json_object_get(tree, "components");
    const char *name;
    json_t *c;
    wd_text_builder_say(&p, "%s: %s", text(tree, "path"), text(tree, "kind"));
    if (text(tree, "naming")[0])
        wd_text_builder_say(&p, ", %s names%s%s", text(tree, "naming"),
                            text(tree, "prefix")[0] ? " behind " : "", text(tree, "prefix"));
    wd_text_builder_say(&p, "\n");
    if (components) say_other_kind(&p, components);
    if (json_object_get(tree, "parameters") && components) say_pipeline(&p, tree);
    json_object_foreach((json_t *)components, name, c) if (text(c, "loras")[0])
        wd_text_builder_say(&p, "%s with LoRAs: %s\n", name, text(c, "loras"));
    if (json_object_get(tree, "tensor_list")) say_tensors(&p, tree);
    if (components) say_components(&p, components);
    for (int configs = 0; configs < 2; configs++) {
        json_object_foreach((json_t *)components, name, c)
        {
            if (!strcmp(name, "transformer_2") && same_shape(components)) continue;
            if (configs)
                say_config(&p, name, json_object_get(c, "config"));
            else
                say_stages(&p, name, json_object_get(c, "stages"));
        }
    }
    return wd_text_builder_take(out, &p);
}
