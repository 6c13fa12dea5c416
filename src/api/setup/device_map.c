/* Reading a device map: see api/setup/device_map.h.
 *
 * Every key covers some cells: a cell is a module of a component that a key may name. Cells of one
 * stage must agree: its modules are computed together. */
#include "api/setup/device_map.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"

/* Cells of a transformer: the modules of the embedding, the blocks, the modules of the head. */
static const char *const embedding[] = {"patch_embedding", "condition_embedder", "rope"};
static const char *const head[] = {"norm_out", "proj_out", "scale_shift_table"};
enum { PARTS = 3, CELLS = WD_PLACED_STAGES_MAX + 2 * PARTS, KEY_MAX = 256, LIST_MAX = 1024 };

enum { TEXT_ENCODER, VAE, TRANSFORMER, TRANSFORMER_2, COMPONENTS };
static const char *const component_names[] = {"text_encoder", "vae", "transformer",
                                              "transformer_2"};

typedef struct cell {
    int keys; /* that cover it */
    wd_stage_placement place;
} cell;

typedef struct reader {
    cell cell[COMPONENTS][CELLS];
    int experts, blocks;
    const wd_map_devices *devices;
    char unknown[LIST_MAX], values[LIST_MAX];
} reader;

/* Adds one to a list for a message; what is too much for it is "...". */
static void list(char out[LIST_MAX], const char *format, ...)
{
    char item[2 * KEY_MAX];
    size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(item, sizeof item, format, args);
    va_end(args);
    const char *comma = used ? ", " : "";
    if (used + strlen(item) + sizeof ", , ..." <= LIST_MAX)
        wd_append_text(out, LIST_MAX, used, "%s%s", comma, item);
    else if (used < 3 || strcmp(out + used - 3, "..."))
        wd_append_text(out, LIST_MAX, used, "%s...", comma);
}

static int cells_of(const reader *r, int component)
{
    if (component == TEXT_ENCODER || component == VAE) return 1;
    return component == TRANSFORMER_2 && r->experts < 2 ? 0 : r->blocks + 2 * PARTS;
}

static void cell_name(char out[KEY_MAX], const reader *r, int component, int i)
{
    const char *name = component_names[component];
    if (component == TEXT_ENCODER || component == VAE)
        snprintf(out, KEY_MAX, "%s", name);
    else if (i < PARTS)
        snprintf(out, KEY_MAX, "%s.%s", name, embedding[i]);
    else if (i < PARTS + r->blocks)
        snprintf(out, KEY_MAX, "%s.blocks.%d", name, i - PARTS);
    else
        snprintf(out, KEY_MAX, "%s.%s", name, head[i - PARTS - r->blocks]);
}

/* ---- values ---- */

/* 1, or "1", which is what some writers of JSON make of it. */
static bool read_index(json_int_t *index, const json_t *value)
{
    const char *text = json_string_value(value);
    *index = text ? strtoll(text, NULL, 10) : json_integer_value(value);
    return text ? *text && !text[strspn(text, "0123456789")] : json_is_integer(value);
}

static bool read_place(wd_stage_placement *out, const json_t *value, const wd_map_devices *devices)
{
    json_int_t index;
    if (read_index(&index, value)) {
        *out = (wd_stage_placement){WD_HOME_DEVICE, (int)index};
        return index >= 0 && index < devices->count;
    }
    const char *text = json_string_value(value);
    if (!text) return false;
    for (int d = 0; d < devices->count; d++)
        if (!strcmp(text, devices->name[d])) {
            *out = (wd_stage_placement){WD_HOME_DEVICE, d};
            return true;
        }
    bool is_disk = !strcmp(text, "disk");
    *out = (wd_stage_placement){is_disk ? WD_HOME_DISK : WD_HOME_HOST, devices->streamed};
    return is_disk || !strcmp(text, "cpu");
}

/* ---- keys ---- */

/* "7" or "0-19" -> [first, last]. */
static bool read_range(int *first, int *last, const char *text, int blocks)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    long a = strtol(text, &end, 10), b = a;
    if (*end == '-' && end[1] >= '0' && end[1] <= '9') b = strtol(end + 1, &end, 10);
    *first = (int)a, *last = (int)b;
    return !*end && a <= b && b < blocks;
}

/* Cells [*first, *last] of a transformer that `module` names. */
static bool find_module(int *first, int *last, const reader *r, const char *module)
{
    *first = 0, *last = r->blocks + 2 * PARTS - 1;
    if (!*module) return true;
    for (int i = 0; i < PARTS; i++) {
        bool is_embedding = !strcmp(module, embedding[i]), is_head = !strcmp(module, head[i]);
        *first = *last = is_embedding ? i : PARTS + r->blocks + i;
        if (is_embedding || is_head) return true;
    }
    *first = PARTS, *last = PARTS + r->blocks - 1;
    if (!strcmp(module, "blocks") || !strcmp(module, "layer")) return true;
    const char *number = !strncmp(module, "blocks.", 7)  ? module + 7
                         : !strncmp(module, "layer.", 6) ? module + 6
                                                         : "";
    if (!read_range(first, last, number, r->blocks)) return false;
    *first += PARTS, *last += PARTS;
    return true;
}

static void cover(reader *r, int component, int first, int last, wd_stage_placement place)
{
    for (int i = first; i <= last; i++) {
        cell *c = &r->cell[component][i];
        c->keys++;
        c->place = place;
    }
}

/* The component that a key begins with; *rest: what follows. COMPONENTS: none. */
static int component_of(const char **rest, const char *key)
{
    for (int c = 0; c < COMPONENTS; c++) {
        size_t n = strlen(component_names[c]);
        if (strncmp(key, component_names[c], n) || (key[n] && key[n] != '.')) continue;
        *rest = key + n + (key[n] == '.');
        return c;
    }
    *rest = key;
    return COMPONENTS;
}

/* Whether all of a key but its end would have been a module: accelerate may cut these, too. */
static bool find_whole(char out[KEY_MAX], const reader *r, const char *key)
{
    int first, last;
    const char *module;
    snprintf(out, KEY_MAX, "%s", key);
    for (char *dot; (dot = strrchr(out, '.'));) {
        *dot = 0;
        const int component = component_of(&module, out);
        if (component == TEXT_ENCODER || component == VAE) return !*module;
        if (*module && strcmp(module, "blocks") && strcmp(module, "layer") &&
            find_module(&first, &last, r, module))
            return true;
    }
    return false;
}

static void list_unknown(reader *r, const char *key)
{
    char whole[KEY_MAX];
    if (!strncmp(key, "unet", 4))
        list(r->unknown, "\"%s\" (here it is \"transformer\")", key);
    else if (find_whole(whole, r, key))
        list(r->unknown, "\"%s\" (\"%s\" goes as a whole)", key, whole);
    else
        list(r->unknown, "\"%s\"", key);
}

static void read_entry(reader *r, const char *key, const json_t *value)
{
    wd_stage_placement place;
    const char *module;
    int component = component_of(&module, key), first, last;
    bool known = true;
    if (!read_place(&place, value, r->devices)) {
        char *text = json_dumps(value, JSON_ENCODE_ANY);
        list(r->values, "\"%s\": %s", key, text ? text : "?");
        free(text);
        return;
    }
    if (component == TEXT_ENCODER || component == VAE) {
        known = !*module;
        if (known) cover(r, component, 0, 0, place);
    } else if (component < COMPONENTS) {
        known = cells_of(r, component) && find_module(&first, &last, r, module);
        if (known) cover(r, component, first, last, place);
    } else if (!*key) {
        for (int c = 0; c < COMPONENTS; c++) cover(r, c, 0, cells_of(r, c) - 1, place);
    } else {
        known = find_module(&first, &last, r, module);
        for (int c = TRANSFORMER; known && c < TRANSFORMER + r->experts; c++)
            cover(r, c, first, last, place);
    }
    if (!known) list_unknown(r, key);
}

static void read_level(reader *r, const char *prefix, const json_t *level)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)level, name, value)
    {
        char key[KEY_MAX];
        bool joined = *prefix && *name;
        int n = snprintf(key, sizeof key, "%s%s%s", prefix, joined ? "." : "", name);
        if (n >= (int)sizeof key || wd_terminal_safe_bytes(key, (size_t)n, KEY_MAX) < n)
            list(r->unknown, "\"%.*s...\"", WD_TERMINAL_SAFE(key, 40));
        else if (json_is_object(value))
            read_level(r, key, value);
        else
            read_entry(r, key, value);
    }
}

/* ---- the whole ---- */

static bool same_place(wd_stage_placement a, wd_stage_placement b)
{
    return a.home == b.home && a.device == b.device;
}

/* Cells [first, first + count) are one stage. */
static wd_stage_placement place_stage(reader *r, char *torn, int component, int first, int count)
{
    const cell *c = &r->cell[component][first];
    for (int i = 1; i < count; i++) {
        char a[KEY_MAX], b[KEY_MAX];
        if (same_place(c[0].place, c[i].place)) continue;
        cell_name(a, r, component, first);
        cell_name(b, r, component, first + i);
        list(torn, "%s and %s", a, b);
    }
    return c->place;
}

static bool is_block(const reader *r, int component, int i)
{
    return component >= TRANSFORMER && i >= PARTS && i < PARTS + r->blocks;
}

/* Lists the cells that no key covers, or those that several do; blocks in ranges. */
static void list_cells(char *out, const reader *r, bool gaps)
{
    for (int c = 0; c < COMPONENTS; c++)
        for (int i = 0, last; i < cells_of(r, c); i = last + 1) {
            char name[KEY_MAX];
            const cell *cells = r->cell[c];
            last = i;
            if (gaps ? cells[i].keys : cells[i].keys < 2) continue;
            while (is_block(r, c, i) && is_block(r, c, last + 1) &&
                   (gaps ? !cells[last + 1].keys : cells[last + 1].keys > 1))
                last++;
            cell_name(name, r, c, i);
            if (last > i)
                list(out, "%s-%d", name, last - PARTS);
            else
                list(out, "%s", name);
        }
}

static wd_status check(const reader *r, const char *where, wd_err *err)
{
    char gaps[LIST_MAX] = "", overlaps[LIST_MAX] = "", names[LIST_MAX] = "";
    if (*r->unknown)
        return wd_fail(
            err, WD_INVALID_ARGUMENT,
            "%s: unknown: %s. Expected text_encoder, vae, transformer, transformer_2, or "
            "modules of these: patch_embedding, condition_embedder, rope, blocks.0-%d, "
            "norm_out, proj_out, scale_shift_table%s",
            where, r->unknown, r->blocks - 1,
            r->experts < 2 ? " (this teacher has no transformer_2)" : "");
    for (int d = 0; d < r->devices->count; d++) list(names, "%s", r->devices->name[d]);
    if (*r->values)
        return wd_fail(
            err, WD_INVALID_ARGUMENT,
            "%s: no such place: %s. Expected \"cpu\", \"disk\", or a device: 0 to %d, %s", where,
            r->values, r->devices->count - 1, names);
    list_cells(overlaps, r, false);
    if (*overlaps)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: placed more than once: %s. Name each part once", where, overlaps);
    list_cells(gaps, r, true);
    if (*gaps)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: placed nowhere: %s. Add them, or a shorter name that covers them",
                       where, gaps);
    return WD_OK;
}

wd_status wd_device_map_read(wd_device_map *out, const json_t *map, const char *where, int experts,
                             int stages, const wd_map_devices *devices, wd_err *err)
{
    reader r = {.experts = experts, .blocks = stages - 2, .devices = devices};
    char torn[LIST_MAX] = "";
    if (!json_is_object(map))
        return wd_fail(err, WD_INVALID_ARGUMENT, "%s: expected a JSON object of names and places",
                       where);
    read_level(&r, "", map);
    WD_TRY(check(&r, where, err));
    *out = (wd_device_map){.placement = {.experts = experts, .stages = stages},
                           .text_encoder = r.cell[TEXT_ENCODER][0].place,
                           .vae = r.cell[VAE][0].place};
    for (int e = 0; e < experts; e++) {
        wd_stage_placement *place = out->placement.place[e];
        int c = TRANSFORMER + e;
        place[0] = place_stage(&r, torn, c, 0, PARTS);
        for (int b = 0; b < r.blocks; b++) place[1 + b] = r.cell[c][PARTS + b].place;
        place[stages - 1] = place_stage(&r, torn, c, PARTS + r.blocks, PARTS);
    }
    if (*torn)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: computed together, so they must be in one place: %s", where, torn);
    return WD_OK;
}
