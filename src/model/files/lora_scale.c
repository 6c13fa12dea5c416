/* Factors of LoRAs' products: see model/files/lora_scale.h.
 *
 * Settings follow PEFT's LoraConfig, and patterns PEFT's get_pattern_key: the first pattern that is
 * the module's name, or the end of it behind a dot, counts. Patterns are regular expressions there;
 * here a dot is a dot, "^" at the beginning and "$" at the end mean the whole name, and other
 * characters of regular expressions are refused. */
#include "model/files/lora_scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/json/json.h"

/* An alpha that a trainer stores as BF16 differs from the number by at most 2^-9 of it. */
static const double relative_difference_max = 0x1p-8;

enum { PATTERN_MAX_BYTES = 256, PATTERNS_MAX = 4096, SHOWN = 60 };

static wd_status bad_value(const wd_lora_scale_source *s, const char *key, const char *expected,
                           const json_t *value, wd_err *err)
{
    char shown[SHOWN];
    return wd_fail(err, WD_BAD_FORMAT, "%s: \"%.*s\": expected %s, found %s", s->where,
                   WD_TERMINAL_SAFE(key, SHOWN), expected,
                   wd_json_show(shown, sizeof shown, value));
}

/* ---- patterns ---- */

/* A pattern without its anchors and with "\." as "."; *whole: it is all of a module's name. */
static bool plain_pattern(char out[PATTERN_MAX_BYTES], bool *whole, const char *pattern)
{
    size_t used = 0;
    *whole = *pattern == '^';
    for (pattern += *whole; *pattern; pattern++) {
        if (*pattern == '$' && !pattern[1]) break;
        if (*pattern == '\\' && pattern[1] == '.') pattern++;
        if (strchr("\\^$*+?()[]{}|", *pattern) || used + 1 == PATTERN_MAX_BYTES) return false;
        out[used++] = *pattern;
    }
    out[used] = '\0';
    return used > 0;
}

static bool pattern_matches(const char *pattern, const char *module)
{
    char plain[PATTERN_MAX_BYTES];
    bool whole;
    if (!plain_pattern(plain, &whole, pattern)) return false;
    const size_t n = strlen(module), m = strlen(plain);
    if (n < m || strcmp(module + n - m, plain)) return false;
    return n == m || (!whole && module[n - m - 1] == '.');
}

/* The number that the first pattern of a module says, else `otherwise`. All its patterns are marked
 * in `used`, where that is not NULL. */
static double pattern_value(uint8_t *used, const json_t *patterns, const char *module,
                            double otherwise)
{
    double number = otherwise;
    bool found = false;
    const char *pattern;
    json_t *value;
    int64_t i = -1;
    json_object_foreach((json_t *)patterns, pattern, value)
    {
        i++;
        if ((found && !used) || !pattern_matches(pattern, module)) continue;
        if (!found) number = json_number_value(value);
        if (used) used[i] = 1;
        found = true;
    }
    return number;
}

static wd_status take_patterns(json_t **out, const wd_lora_scale_source *s, const char *key,
                               json_t *patterns, wd_err *err)
{
    char plain[PATTERN_MAX_BYTES];
    const char *pattern;
    json_t *value;
    bool whole;
    if (json_is_null(patterns)) return WD_OK;
    if (!json_is_object(patterns) || json_object_size(patterns) > PATTERNS_MAX)
        return bad_value(s, key, "an object of at most 4096 names and numbers", patterns, err);
    json_object_foreach(patterns, pattern, value)
    {
        if (!plain_pattern(plain, &whole, pattern))
            return wd_fail(
                err, WD_UNSUPPORTED,
                "%s: \"%s\" has the pattern \"%.*s\": of regular expressions only names, "
                "or ends of names, with ^ before and $ behind them are read",
                s->where, key, WD_TERMINAL_SAFE(pattern, SHOWN));
        if (!json_is_number(value) || !isfinite(json_number_value(value)))
            return bad_value(s, pattern, "a number", value, err);
    }
    *out = json_incref(patterns);
    return WD_OK;
}

/* ---- settings of PEFT ---- */

/* What a setting of LoraConfig means here. */
typedef enum meaning {
    ALPHA,
    RANK,
    ROOT,
    ALPHAS,
    RANKS,
    TYPE, /* must be "LORA" */
    BIAS, /* must be "none" */
    INIT, /* must not be one that changes the model's own weights */
    IGNORED
} meaning;

static const struct {
    const char *key;
    meaning meaning;
} settings[] = {
    {"lora_alpha", ALPHA},
    {"r", RANK},
    {"use_rslora", ROOT},
    {"alpha_pattern", ALPHAS},
    {"rank_pattern", RANKS},
    {"peft_type", TYPE},
    {"bias", BIAS},
    {"init_lora_weights", INIT},
    /* of training, or of which modules have tensors, which the file shows */
    {"task_type", IGNORED},
    {"auto_mapping", IGNORED},
    {"peft_version", IGNORED},
    {"base_model_name_or_path", IGNORED},
    {"revision", IGNORED},
    {"inference_mode", IGNORED},
    {"target_modules", IGNORED},
    {"exclude_modules", IGNORED},
    {"lora_dropout", IGNORED},
    {"layers_to_transform", IGNORED},
    {"layers_pattern", IGNORED},
    {"loftq_config", IGNORED},
    {"eva_config", IGNORED},
    {"corda_config", IGNORED},
    {"qalora_group_size", IGNORED},
    {"megatron_core", IGNORED},
    {"ensure_weight_tying", IGNORED},
};

static bool is_off(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) && !*json_string_value(value)) ||
           (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) && !json_object_size(value));
}

static wd_status take_number(double *out, const wd_lora_scale_source *s, const char *key,
                             const json_t *value, wd_err *err)
{
    if (json_is_null(value)) return WD_OK;
    if (!json_is_number(value) || !isfinite(json_number_value(value)))
        return bad_value(s, key, "a finite number", value, err);
    *out = json_number_value(value);
    return WD_OK;
}

static wd_status expect_text(const wd_lora_scale_source *s, const char *key, const char *expected,
                             const json_t *value, wd_err *err)
{
    const char *found = json_string_value(value);
    if (is_off(value) || (found && !strcmp(found, expected))) return WD_OK;
    char shown[SHOWN];
    return wd_fail(err, WD_UNSUPPORTED, "%s: \"%s\": expected \"%s\", found %s", s->where, key,
                   expected, wd_json_show(shown, sizeof shown, value));
}

/* PiSSA, OLoRA, LoftQ, CorDA and LoRA-GA change the model's own weights when training begins. */
static wd_status check_init(const wd_lora_scale_source *s, const char *key, const json_t *value,
                            wd_err *err)
{
    static const char *const harmless[] = {"gaussian", "eva", "orthogonal"};
    const char *found = json_string_value(value);
    char shown[SHOWN];
    for (size_t i = 0; found && i < sizeof harmless / sizeof *harmless; i++)
        if (!strcmp(found, harmless[i])) return WD_OK;
    if (!found && (is_off(value) || json_is_true(value))) return WD_OK;
    return wd_fail(
        err, WD_UNSUPPORTED,
        "%s: \"%s\" is %s, under which the model's own weights change, too: use the LoRA "
        "after its conversion to an ordinary one (PEFT: "
        "path_initial_model_for_weight_conversion)",
        s->where, key, wd_json_show(shown, sizeof shown, value));
}

static wd_status refuse_setting(const wd_lora_scale_source *s, const char *key, const json_t *value,
                                wd_err *err)
{
    char shown[SHOWN];
    return wd_fail(err, WD_UNSUPPORTED,
                   "%s: \"%.*s\" is %s: it may change what the LoRA does and is not implemented; "
                   "expected false, null or absent",
                   s->where, WD_TERMINAL_SAFE(key, SHOWN),
                   wd_json_show(shown, sizeof shown, value));
}

static wd_status take_setting(wd_lora_scale_source *s, const char *key, json_t *value, wd_err *err)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (strcmp(key, settings[i].key)) continue;
        switch (settings[i].meaning) {
        case ALPHA:
            return take_number(&s->alpha, s, key, value, err);
        case RANK:
            return take_number(&s->rank, s, key, value, err);
        case ROOT:
            s->by_root = json_is_true(value);
            if (json_is_boolean(value) || json_is_null(value)) return WD_OK;
            return bad_value(s, key, "true or false", value, err);
        case ALPHAS:
            return take_patterns(&s->alphas, s, key, value, err);
        case RANKS:
            return take_patterns(&s->ranks, s, key, value, err);
        case TYPE:
            return expect_text(s, key, "LORA", value, err);
        case BIAS:
            return expect_text(s, key, "none", value, err);
        case INIT:
            return check_init(s, key, value, err);
        case IGNORED:
            return WD_OK;
        }
    }
    return is_off(value) ? WD_OK : refuse_setting(s, key, value, err);
}

/* Where one key has the component's name before it, all have: others are of other components. */
static wd_status take_settings(wd_lora_scale_source *s, json_t *config, wd_err *err)
{
    static const char prefix[] = "transformer.";
    enum { LENGTH = sizeof prefix - 1 };
    const char *key;
    json_t *value;
    bool prefixed = false;
    if (!json_is_object(config))
        return wd_fail(err, WD_BAD_FORMAT, "%s: expected a JSON object", s->where);
    json_object_foreach(config, key, value) prefixed = prefixed || !strncmp(key, prefix, LENGTH);
    json_object_foreach(config, key, value)
    {
        const bool own = !prefixed || !strncmp(key, prefix, LENGTH);
        if (own)
            WD_TRY(take_setting(s, prefixed ? key + LENGTH : key, value, err));
        else if (!is_off(value))
            return wd_fail(err, WD_UNSUPPORTED,
                           "%s: \"%.*s\": the file has LoRAs of several components: expected one "
                           "of a transformer alone; write each into a file of its own, for "
                           "--teacher_lora and --teacher_lora_2",
                           s->where, WD_TERMINAL_SAFE(key, SHOWN));
    }
    if (isnan(s->alpha) && (!isnan(s->rank) || s->by_root || s->alphas))
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: \"lora_alpha\" is missing, so the LoRA's factor is not known",
                       s->where);
    if (!s->alphas) return WD_OK;
    return wd_alloc((void **)&s->used, json_object_size(s->alphas) + 1, 1, "patterns of a LoRA",
                    err);
}

/* ---- where it is said ---- */

static wd_lora_scale_source *begin(wd_lora_scales *l)
{
    wd_lora_scale_source *s = &l->source[l->count++];
    *s = (wd_lora_scale_source){.alpha = NAN, .rank = NAN};
    return s;
}

static void close_source(wd_lora_scale_source *s)
{
    json_decref(s->alphas);
    json_decref(s->ranks);
    wd_free(s->used);
    *s = (wd_lora_scale_source){0};
}

/* A source that says no alpha is no source. */
static void end(wd_lora_scales *l)
{
    if (!isnan(l->source[l->count - 1].alpha)) return;
    close_source(&l->source[--l->count]);
}

static wd_status read_header(wd_lora_scales *l, const wd_safetensors *set, wd_err *err)
{
    static const char key[] = "lora_adapter_metadata";
    const char *text = wd_safetensors_metadata(set, key);
    json_t *json;
    if (!text) return WD_OK;
    wd_lora_scale_source *s = begin(l);
    snprintf(s->where, sizeof s->where, "%s: metadata \"%s\"", l->file, key);
    WD_TRY(wd_json_parse(&json, text, strlen(text), s->where, err));
    const wd_status status = take_settings(s, json, err);
    json_decref(json);
    if (status == WD_OK) end(l);
    return status;
}

/* The first of the metadata's `keys`, also behind the component's name, that is there; NULL: none.
 */
static const char *first_of(const char **key, const wd_safetensors *set, const char *const *keys)
{
    for (; *keys; keys++) {
        const char *text = wd_safetensors_metadata(set, *keys);
        *key = *keys;
        if (text) return text;
    }
    return NULL;
}

static bool is_number(double *out, const char *text)
{
    char *end_of_number;
    *out = strtod(text, &end_of_number);
    return *text && !*end_of_number && isfinite(*out);
}

/* Whether a text of the metadata says nothing: trainers write Python's None. */
static bool is_none(const char *text)
{
    return !*text || !strcmp(text, "None") || !strcmp(text, "null");
}

static wd_status read_numbers(wd_lora_scales *l, const wd_safetensors *set, wd_err *err)
{
    static const char *const alphas[] = {"lora_alpha", "transformer.lora_alpha", "network_alpha",
                                         "alpha", NULL};
    static const char *const ranks[] = {"lora_rank", "r",           "transformer.r",
                                        "rank",      "network_dim", NULL};
    const char *key, *rank_key;
    const char *alpha = first_of(&key, set, alphas), *rank = first_of(&rank_key, set, ranks);
    double number;
    if (!alpha || is_none(alpha)) return WD_OK;
    if (!strcmp(key, "alpha") && !is_number(&number, alpha)) return WD_OK; /* of any other tool */
    wd_lora_scale_source *s = begin(l);
    s->yields = !strcmp(key, "alpha") || !strcmp(key, "network_alpha");
    snprintf(s->where, sizeof s->where, "%s: metadata \"%s\"", l->file, key);
    if (!is_number(&s->alpha, alpha))
        return wd_fail(err, WD_BAD_FORMAT, "%s: expected a number, found \"%.*s\"", s->where,
                       WD_TERMINAL_SAFE(alpha, SHOWN));
    if (rank && !is_number(&s->rank, rank)) s->rank = NAN;
    return WD_OK;
}

/* kohya's trainers write alpha as tensors, too. Where these are not there, and the tensors are
 * named lora_A and lora_B, a converter has multiplied the factors by it (musubi-tuner,
 * convert_lora.py). Files that were resized have "Dynamic" in place of numbers. */
static wd_status read_kohya(wd_lora_scales *l, const wd_safetensors *set, wd_err *err)
{
    const char *alpha = wd_safetensors_metadata(set, "ss_network_alpha");
    const char *rank = wd_safetensors_metadata(set, "ss_network_dim");
    const char *module = wd_safetensors_metadata(set, "ss_network_module");
    bool has_alphas = false, is_converted = false;
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const char *name = wd_safetensors_at(set, i)->name;
        has_alphas = has_alphas || wd_ends_with(name, ".alpha");
        is_converted = is_converted || strstr(name, ".lora_A");
    }
    if (module && !is_none(module) && !strstr(module, "lora") && !strstr(module, "lycoris") &&
        !strstr(module, "locon"))
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: metadata \"ss_network_module\" is \"%.*s\", which makes no LoRA: "
                       "expected networks.lora, networks.lora_wan or the like",
                       l->file, WD_TERMINAL_SAFE(module, SHOWN));
    if (!alpha || (is_converted && !has_alphas)) return WD_OK;
    wd_lora_scale_source *s = begin(l);
    s->yields = true;
    snprintf(s->where, sizeof s->where, "%s: metadata \"ss_network_alpha\"", l->file);
    if (!is_number(&s->alpha, alpha)) s->alpha = NAN;
    if (rank && !is_number(&s->rank, rank)) s->rank = NAN;
    end(l);
    return WD_OK;
}

/* Whether each B has an alpha tensor beside it. */
static bool all_have_alpha(const wd_safetensors *set)
{
    int64_t products = 0, alphas = 0;
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const char *name = wd_safetensors_at(set, i)->name;
        products += strstr(name, ".lora_B") || strstr(name, ".lora_up");
        alphas += wd_ends_with(name, ".alpha");
    }
    return alphas >= products;
}

/* A file of PEFT without its configuration. Other trainers use PEFT's name for the file alone, and
 * their factor is 1. */
static wd_status without_config(const wd_lora_scales *l, const wd_safetensors *set, bool is_named,
                                const char *path, wd_err *err)
{
    if (l->count || all_have_alpha(set)) return WD_OK;
    if (is_named)
        return wd_fail(err, WD_NOT_FOUND,
                       "%s: is a LoRA of PEFT, whose alpha is in %s, which is missing: put the "
                       "file of the same adapter there, or one with {\"r\": RANK, \"lora_alpha\": "
                       "ALPHA}",
                       l->file, path);
    wd_log(WD_LOG_WARNING,
           "%s: nothing says its alpha, and there is no %s: its products are added as they are",
           l->file, path);
    return WD_OK;
}

/* PEFT's own files have a name of their own, and names of tensors that begin with the wrapped
 * model; adapter_config.json beside another file may belong to anything. */
static wd_status read_beside(wd_lora_scales *l, const wd_safetensors *set, wd_err *err)
{
    static const char own_name[] = "adapter_model.safetensors", prefix[] = "base_model.model.";
    bool is_named = false;
    char path[WD_PATH_MAX];
    json_t *json;
    for (int64_t i = 0; i < wd_safetensors_count(set); i++)
        is_named = is_named || !strncmp(wd_safetensors_at(set, i)->name, prefix, sizeof prefix - 1);
    if (!is_named && strcmp(wd_path_name(l->file), own_name)) return WD_OK;
    WD_TRY(wd_path_beside(path, l->file, "adapter_config.json", err));
    if (!wd_path_exists(path)) return without_config(l, set, is_named, path, err);
    wd_lora_scale_source *s = begin(l);
    snprintf(s->where, sizeof s->where, "%s", path);
    WD_TRY(wd_json_load(&json, path, err));
    const wd_status status = take_settings(s, json, err);
    json_decref(json);
    if (status != WD_OK || !isnan(s->alpha)) return status;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: \"lora_alpha\" is missing, so the LoRA's factor is not "
                   "known",
                   s->where);
}

wd_status wd__lora_scales_open(wd_lora_scales *out, const wd_safetensors *set, const char *path,
                               wd_err *err)
{
    wd_status status;
    *out = (wd_lora_scales){.file = path};
    WD_TRY_OUT(read_header(out, set, err));
    WD_TRY_OUT(read_numbers(out, set, err));
    WD_TRY_OUT(read_kohya(out, set, err));
    WD_TRY_OUT(read_beside(out, set, err));
    return WD_OK;
out:
    wd__lora_scales_close(out);
    return status;
}

void wd__lora_scales_close(wd_lora_scales *l)
{
    for (int i = 0; i < WD_LORA_SCALE_SOURCES; i++) close_source(&l->source[i]);
    *l = (wd_lora_scales){0};
}

/* ---- factors ---- */

static wd_status factor_of(double *out, wd_lora_scale_source *s, const char *module, int64_t rank,
                           wd_err *err)
{
    const double expected = pattern_value(NULL, s->ranks, module, s->rank);
    const double alpha = pattern_value(s->used, s->alphas, module, s->alpha);
    if (!isnan(expected) && expected != (double)rank)
        return wd_fail(
            err, WD_MISMATCH,
            "%s: says that module \"%s\" has rank %g, but its tensors have rank %" PRId64, s->where,
            module, expected, rank);
    *out = alpha / (s->by_root ? sqrt((double)rank) : (double)rank);
    return WD_OK;
}

wd_status wd__lora_scale(double *out, wd_lora_scales *l, const char *module, int64_t rank,
                         const wd_safetensors_entry *alpha, double value, wd_err *err)
{
    const char *said = NULL;
    char tensor[2 * WD_PATH_MAX];
    *out = 1;
    if (alpha) {
        snprintf(tensor, sizeof tensor, "%s: tensor \"%s\"", alpha->file, alpha->name);
        *out = value / (double)rank;
        said = tensor;
    }
    for (int i = 0; i < l->count; i++) {
        double factor = 1;
        if (alpha && l->source[i].yields) continue;
        WD_TRY(factor_of(&factor, &l->source[i], module, rank, err));
        const double difference = fabs(factor - *out);
        if (said && !(difference <= relative_difference_max * fabs(factor)))
            return wd_fail(
                err, WD_MISMATCH,
                "%s and %s contradict each other: module \"%s\" is multiplied by %g (alpha "
                "over rank) by the first, by %g by the second: give a file in which they "
                "agree",
                said, l->source[i].where, module, *out, factor);
        if (!said) *out = factor;
        if (!said) said = l->source[i].where;
    }
    return WD_OK;
}

wd_status wd__lora_scales_check_used(const wd_lora_scales *l, wd_err *err)
{
    for (int i = 0; i < l->count; i++) {
        const wd_lora_scale_source *s = &l->source[i];
        const char *pattern;
        json_t *value;
        int64_t at = 0;
        json_object_foreach(s->alphas, pattern, value)
        {
            if (!s->used[at++])
                return wd_fail(
                    err, WD_MISMATCH,
                    "%s: \"alpha_pattern\" has \"%.*s\", which is no module of the file, "
                    "nor the end of one",
                    s->where, WD_TERMINAL_SAFE(pattern, SHOWN));
        }
    }
    return WD_OK;
}
