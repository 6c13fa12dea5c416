/* The student's configuration file. Three things are checked: every key is known; keys that say the
 * same thing agree; the result can be taken from the teacher. */
#include "train/network/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/text.h"

enum {
    VALUE_MAX = 1 << 20,
    LAYERS_MAX = 4096,
    TEXT_MAX = 4096,
    SIDE_MAX = 1 << 14,      /* pixels; as --height and --width */
    WIDTH_DEFAULT_MAX = 1536 /* what one device can train, whatever the teacher's width */
};

/* The fields that integer keys set. */
typedef enum setting {
    WIDTH,
    HEADS,
    HEAD_DIM,
    LAYERS,
    IN_CHANNELS,
    OUT_CHANNELS,
    TEXT_DIM,
    FFN_DIM,
    FREQ_DIM,
    ROPE_MAX,
    TEXT_TOKENS,
    SETTINGS
} setting;

typedef struct int_key {
    const char *name;
    setting setting;
} int_key;

static const int_key int_keys[] = {
    {"hidden_size", WIDTH},
    {"num_heads", HEADS},
    {"num_attention_heads", HEADS},
    {"attention_head_dim", HEAD_DIM},
    {"depth", LAYERS},
    {"num_layers", LAYERS},
    {"num_channels", IN_CHANNELS},
    {"in_channels", IN_CHANNELS},
    {"out_channels", OUT_CHANNELS},
    {"text_encoder_output_dim", TEXT_DIM},
    {"text_dim", TEXT_DIM},
    {"ffn_dim", FFN_DIM},
    {"freq_dim", FREQ_DIM},
    {"rope_max_seq_len", ROPE_MAX},
    {"text_max_length", TEXT_TOKENS},
};

/* Keys with a reader of their own, and those of diffusers' config.json that say nothing here. */
static const char *const other_keys[] = {
    "image_size",        "patch_size",
    "projection_factor", "model_type",
    "_class_name",       "_diffusers_version",
    "_name_or_path",     "eps",
    "cross_attn_norm",   "qk_norm",
    "added_kv_proj_dim", "image_dim",
    "pos_embed_seq_len",
};

enum {
    INT_KEYS = sizeof int_keys / sizeof *int_keys,
    OTHER_KEYS = sizeof other_keys / sizeof *other_keys,
    KEYS = INT_KEYS + OTHER_KEYS
};

static const char *key_at(int i)
{
    return i < INT_KEYS ? int_keys[i].name : other_keys[i - INT_KEYS];
}

/* ---- faults ---- */

enum { FAULTS_TEXT = 1600 }; /* an error has room for them and for a path */

/* The faults of a file, which are reported together. */
typedef struct faults {
    const char *where;
    char text[FAULTS_TEXT]; /* as many as fit, each without the name of the file */
    size_t used;
    int count;
    bool is_cut;
    wd_status status; /* of the first one */
} faults;

/* Adds the fault of a check that failed with `err`. */
static void note(faults *f, wd_status status, const wd_err *err)
{
    const char *text = err->message;
    const size_t n = strlen(f->where);
    if (status == WD_OK) return;
    if (!strncmp(text, f->where, n) && !strncmp(text + n, ": ", 2)) text += n + 2;
    if (!f->count++) f->status = status;
    if (f->used + strlen(text) + sizeof "; (1000)  ..." > sizeof f->text) {
        f->is_cut = true;
        return;
    }
    f->used = wd_append_text(f->text, sizeof f->text, f->used, "%s(%d) %s",
                             f->count > 1 ? "; " : "", f->count, text);
}

static wd_status report(const faults *f, wd_err *err)
{
    if (f->count == 1) return wd_fail(err, f->status, "%s: %s", f->where, f->text + strlen("(1) "));
    return wd_fail(err, f->status, "%s has %d faults: %s%s", f->where, f->count, f->text,
                   f->is_cut ? "; ..." : "");
}

/* ---- unknown keys ---- */

enum { KEY_MAX = 48 };

/* Levenshtein distance; keys longer than KEY_MAX are far from everything. */
static int distance(const char *a, const char *b)
{
    int row[KEY_MAX + 1];
    int na = (int)strnlen(a, KEY_MAX + 1), nb = (int)strnlen(b, KEY_MAX + 1);
    if (na > KEY_MAX || nb > KEY_MAX) return KEY_MAX;
    for (int j = 0; j <= nb; j++) row[j] = j;
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

static wd_status check_key(const char *key, const char *where, wd_err *err)
{
    int nearest = 0, nearest_distance = KEY_MAX;
    for (int i = 0; i < KEYS; i++) {
        int d = distance(key, key_at(i));
        if (d == 0) return WD_OK;
        if (d < nearest_distance) {
            nearest = i;
            nearest_distance = d;
        }
    }
    if (nearest_distance <= 4) {
        return wd_fail(err, WD_INVALID_ARGUMENT, "%s: unknown key \"%.*s\"; did you mean \"%s\"?",
                       where, WD_TERMINAL_SAFE(key, 60), key_at(nearest));
    }
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s: unknown key \"%.*s\"; known are hidden_size, depth, num_heads, "
                   "num_channels, image_size, patch_size, text_max_length, "
                   "text_encoder_output_dim, projection_factor, model_type, and the keys of a "
                   "diffusers transformer's config.json",
                   where, WD_TERMINAL_SAFE(key, 60));
}

/* ---- values ---- */

/* A value that a file gave, and the key that gave it. */
typedef struct given {
    const char *key; /* NULL: not given */
    int64_t value;
} given;

static wd_status read_int(given *g, const int_key *key, wd_json_reader r, wd_err *err)
{
    const setting s = key->setting;
    const int64_t most = s == LAYERS ? LAYERS_MAX : s == TEXT_TOKENS ? TEXT_MAX : VALUE_MAX;
    int64_t value = 0;
    WD_TRY(wd_json_int(&value, r, key->name, 1, most, WD_JSON_OPTIONAL, err));
    if (!value) return WD_OK;
    if (g->key && g->value != value)
        return wd_fail(err, WD_MISMATCH, "%s: %s is %lld, but %s is %lld; give one of them",
                       r.where, g->key, (long long)g->value, key->name, (long long)value);
    *g = (given){key->name, value};
    return WD_OK;
}

static void read_ints(given out[SETTINGS], faults *f, wd_json_reader r)
{
    wd_err err;
    for (int i = 0; i < INT_KEYS; i++)
        note(f, read_int(&out[int_keys[i].setting], &int_keys[i], r, &err), &err);
}

/* A value that cannot differ from the teacher's. */
static wd_status same(const given *g, const char *where, int64_t teacher, const char *why,
                      wd_err *err)
{
    if (!g->key || g->value == teacher) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "%s: %s is %lld, but the teacher's is %lld; %s: leave the key out", where,
                   g->key, (long long)g->value, (long long)teacher, why);
}

static void check_same(faults *f, const given g[SETTINGS], const char *where,
                       const wd_dit_config *t)
{
    const char *vae = "the student uses the teacher's VAE, so channels must agree";
    wd_err err;
    note(f, same(&g[IN_CHANNELS], where, t->in_channels, vae, &err), &err);
    note(f, same(&g[OUT_CHANNELS], where, t->out_channels, vae, &err), &err);
    note(f,
         same(&g[TEXT_DIM], where, t->text_dim,
              "the student uses the teacher's text encoder, so text widths must agree", &err),
         &err);
    note(f, same(&g[HEAD_DIM], where, t->head_dim, "heads are taken whole from the teacher", &err),
         &err);
    note(f,
         same(&g[FREQ_DIM], where, t->freq_dim, "the time embedding is taken from the teacher",
              &err),
         &err);
}

/* Width, from hidden_size or the number of heads, which must agree. */
static wd_status read_width(wd_dit_config *c, const given g[SETTINGS], const char *where,
                            wd_err *err)
{
    if (g[WIDTH].key && g[HEADS].key && g[WIDTH].value != g[HEADS].value * c->head_dim) {
        return wd_fail(err, WD_MISMATCH,
                       "%s: hidden_size is %lld, but %s %lld times the teacher's head size %lld "
                       "is %lld; give one of them",
                       where, (long long)g[WIDTH].value, g[HEADS].key, (long long)g[HEADS].value,
                       (long long)c->head_dim, (long long)(g[HEADS].value * c->head_dim));
    }
    if (g[WIDTH].key && g[WIDTH].value % c->head_dim) {
        int64_t below = g[WIDTH].value / c->head_dim * c->head_dim;
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: hidden_size is %lld, which is not a multiple of the teacher's head "
                       "size %lld; the nearest are %lld and %lld",
                       where, (long long)g[WIDTH].value, (long long)c->head_dim,
                       (long long)(below ? below : c->head_dim), (long long)(below + c->head_dim));
    }
    if (g[HEADS].key)
        c->heads = g[HEADS].value;
    else if (g[WIDTH].key)
        c->heads = g[WIDTH].value / c->head_dim;
    return WD_OK;
}

/* The feed-forward width of so many heads in the teacher's proportion. */
static int64_t usual_ffn_dim(const wd_dit_config *teacher, int64_t heads)
{
    return teacher->ffn_dim * heads / teacher->heads;
}

/* Feed-forward width: ffn_dim, projection_factor times the width, else the teacher's proportion. */
static wd_status read_ffn(wd_dit_config *c, const given g[SETTINGS], wd_json_reader r,
                          const wd_dit_config *teacher, wd_err *err)
{
    double factor = 0, width = (double)wd_dit_width(c);
    WD_TRY(wd_json_float(&factor, r, "projection_factor", WD_JSON_OPTIONAL, err));
    bool has_factor = json_object_get(r.object, "projection_factor") &&
                      !json_is_null(json_object_get(r.object, "projection_factor"));
    if (has_factor && !(factor > 0 && factor * width < VALUE_MAX && factor * width >= 1)) {
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: projection_factor is %g; expected the feed-forward width over the "
                       "hidden size, such as %g (the teacher's)",
                       r.where, factor, (double)teacher->ffn_dim / (double)wd_dit_width(teacher));
    }
    int64_t by_factor = llround(factor * width);
    if (has_factor && g[FFN_DIM].key && g[FFN_DIM].value != by_factor) {
        return wd_fail(err, WD_MISMATCH,
                       "%s: ffn_dim is %lld, but projection_factor %g times the width %g is "
                       "%lld; give one of them",
                       r.where, (long long)g[FFN_DIM].value, factor, width, (long long)by_factor);
    }
    if (g[FFN_DIM].key)
        c->ffn_dim = g[FFN_DIM].value;
    else if (has_factor)
        c->ffn_dim = by_factor;
    else
        c->ffn_dim = usual_ffn_dim(teacher, c->heads);
    if (c->ffn_dim < 1)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: with the teacher's proportion nothing is left of the feed-forward "
                       "width; give \"ffn_dim\"",
                       r.where);
    return WD_OK;
}

/* A number, or an array of up to three; *count 0: not given. */
static wd_status read_sizes(int64_t out[3], int64_t *count, wd_json_reader r, const char *key,
                            wd_err *err)
{
    const json_t *value = json_object_get(r.object, key);
    *count = 0;
    if (!value || json_is_null(value)) return WD_OK;
    if (json_is_array(value)) return wd_json_ints(out, count, 3, r, key, WD_JSON_REQUIRED, err);
    WD_TRY(wd_json_int(&out[0], r, key, 1, VALUE_MAX, WD_JSON_REQUIRED, err));
    *count = 1;
    return WD_OK;
}

/* 2, or [1, 2, 2], or [2, 2]: height and width are the last two. */
static wd_status check_patch(wd_json_reader r, const wd_dit_config *t, wd_err *err)
{
    int64_t p[3], count;
    WD_TRY(read_sizes(p, &count, r, "patch_size", err));
    bool agrees = true;
    if (count == 1) agrees = p[0] == t->patch[1] && p[0] == t->patch[2];
    if (count == 2) agrees = p[0] == t->patch[1] && p[1] == t->patch[2];
    if (count == 3) agrees = !memcmp(p, t->patch, sizeof p);
    if (agrees) return WD_OK;
    char *found = json_dumps(json_object_get(r.object, "patch_size"), JSON_ENCODE_ANY);
    wd_fail(err, WD_MISMATCH,
            "%s: patch_size is %s, but the teacher's is [%lld, %lld, %lld]; the patch embedding is "
            "taken from the teacher: leave the key out",
            r.where, found ? found : "another", (long long)t->patch[0], (long long)t->patch[1],
            (long long)t->patch[2]);
    free(found);
    return WD_MISMATCH;
}

static bool is_side(int64_t pixels, int64_t multiple)
{
    return pixels >= 1 && pixels <= SIDE_MAX && pixels % multiple == 0;
}

static wd_status read_image_size(wd_student_config *out, wd_json_reader r,
                                 const wd_pipeline *teacher, wd_err *err)
{
    int64_t size[3], count, multiple = wd_pipeline_size_multiple(teacher);
    WD_TRY(read_sizes(size, &count, r, "image_size", err));
    if (count == 3) {
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: image_size has 3 numbers; expected pixels of a side, or "
                       "[height, width]",
                       r.where);
    }
    if (count) {
        out->image_height = size[0];
        out->image_width = size[count - 1];
    }
    if (!is_side(out->image_height, multiple) || !is_side(out->image_width, multiple)) {
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s: image_size is %lldx%lld; both must be multiples of %lld, the pixels "
                       "that one patch of latents covers, and at most %d",
                       r.where, (long long)out->image_height, (long long)out->image_width,
                       (long long)multiple, SIDE_MAX);
    }
    return WD_OK;
}

/* Whatever a file calls it, the student is a Wan transformer that makes pictures of text. */
static wd_status check_kind(wd_json_reader r, const wd_dit_config *t, wd_err *err)
{
    const char *kinds[] = {"model_type", "_class_name"};
    for (int i = 0; i < 2; i++) {
        const char *kind = NULL;
        WD_TRY(wd_json_text(&kind, r, kinds[i], WD_JSON_OPTIONAL, err));
        if (!kind) continue;
        bool wan = strcasestr(kind, "wan") || !strcasecmp(kind, "t2i") || !strcasecmp(kind, "t2v");
        if (wan && !strcasestr(kind, "vace") && !strcasestr(kind, "i2v")) continue;
        return wd_fail(
            err, WD_UNSUPPORTED,
            "%s: %s is \"%.*s\"; a student is a Wan text-to-image transformer: \"wan\" or "
            "\"t2i\", or leave the key out",
            r.where, kinds[i], WD_TERMINAL_SAFE(kind, 60));
    }
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "image_dim" : "added_kv_proj_dim";
        const json_t *value = json_object_get(r.object, key);
        if (value && !json_is_null(value)) {
            return wd_fail(err, WD_UNSUPPORTED,
                           "%s: %s is for image-to-video models; a student takes text only",
                           r.where, key);
        }
    }
    const char *qk_norm = NULL;
    WD_TRY(wd_json_text(&qk_norm, r, "qk_norm", WD_JSON_OPTIONAL, err));
    if (qk_norm && strcmp(qk_norm, "rms_norm_across_heads"))
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: qk_norm is \"%.*s\"; a Wan transformer's is \"rms_norm_across_heads\": "
                       "leave the key out",
                       r.where, WD_TERMINAL_SAFE(qk_norm, 60));
    bool norm = t->cross_attn_norm;
    WD_TRY(wd_json_bool(&norm, r, "cross_attn_norm", WD_JSON_OPTIONAL, err));
    double eps = t->eps;
    WD_TRY(wd_json_float(&eps, r, "eps", WD_JSON_OPTIONAL, err));
    if (norm != t->cross_attn_norm || eps != t->eps) {
        return wd_fail(err, WD_MISMATCH,
                       "%s: cross_attn_norm %s, eps %g, but the teacher has %s, %g; the norms are "
                       "taken from the teacher: leave the keys out",
                       r.where, norm ? "true" : "false", eps, t->cross_attn_norm ? "true" : "false",
                       t->eps);
    }
    return WD_OK;
}

/* ---- sizes that are taken from a teacher ---- */

wd_dit_config wd_student_config_sized(const wd_dit_config *teacher, int64_t heads, int64_t layers)
{
    wd_dit_config c = *teacher;
    c.heads = heads;
    c.layers = layers;
    c.ffn_dim = usual_ffn_dim(teacher, heads);
    return c;
}

int64_t wd_student_config_default_heads(const wd_dit_config *teacher)
{
    const bool is_wide = wd_dit_width(teacher) > WIDTH_DEFAULT_MAX;
    return is_wide && teacher->head_dim <= WIDTH_DEFAULT_MAX ? WIDTH_DEFAULT_MAX / teacher->head_dim
                                                             : teacher->heads;
}

json_t *wd_student_config_json(const wd_dit_config *student, const wd_dit_config *teacher)
{
    json_t *json = json_pack("{s:I, s:I}", "hidden_size", (json_int_t)wd_dit_width(student),
                             "depth", (json_int_t)student->layers);
    if (student->ffn_dim != usual_ffn_dim(teacher, student->heads))
        json_object_set_new(json, "ffn_dim", json_integer(student->ffn_dim));
    return json;
}

/* ---- the whole ---- */

wd_status wd__student_config_read(wd_student_config *out, const json_t *json, const char *where,
                                  const wd_pipeline *teacher, wd_err *err)
{
    wd_student_config config = {.dit = teacher->dit,
                                .image_height = teacher->default_height,
                                .image_width = teacher->default_width};
    wd_dit_config *dit = &config.dit;
    wd_json_reader r = {json, where};
    given g[SETTINGS] = {0};
    faults f = {.where = where};
    wd_err fault;
    dit->layers = (teacher->dit.layers + 1) / 2;
    dit->heads = wd_student_config_default_heads(&teacher->dit);
    dit->ffn_dim = usual_ffn_dim(&teacher->dit, dit->heads);
    if (!json) {
        *out = config;
        return WD_OK;
    }
    if (!json_is_object(json)) {
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: expected a JSON object with keys such as "
                       "\"hidden_size\" and \"depth\"",
                       where);
    }
    void *i = json_object_iter((json_t *)json);
    for (; i; i = json_object_iter_next((json_t *)json, i))
        note(&f, check_key(json_object_iter_key(i), where, &fault), &fault);
    note(&f, check_kind(r, &teacher->dit, &fault), &fault);
    read_ints(g, &f, r);
    check_same(&f, g, where, &teacher->dit);
    note(&f, check_patch(r, &teacher->dit, &fault), &fault);
    const wd_status width = read_width(dit, g, where, &fault);
    note(&f, width, &fault);
    if (width == WD_OK) note(&f, read_ffn(dit, g, r, &teacher->dit, &fault), &fault);
    note(&f, read_image_size(&config, r, teacher, &fault), &fault);
    if (f.count) return report(&f, err);
    if (g[LAYERS].key) dit->layers = g[LAYERS].value;
    if (g[ROPE_MAX].key) dit->rope_max_seq_len = g[ROPE_MAX].value;
    config.text_tokens = g[TEXT_TOKENS].value;
    if (wd_student_config_check(dit, &teacher->dit, err)) return wd_fail_in(err, "%s", where);
    *out = config;
    return WD_OK;
}

wd_status wd_student_config_load(wd_student_config *out, const char *path,
                                 const wd_pipeline *teacher, wd_err *err)
{
    if (!path) return wd__student_config_read(out, NULL, "default student", teacher, err);
    json_t *json;
    WD_TRY(wd_json_load(&json, path, err));
    wd_status status = wd__student_config_read(out, json, path, teacher, err);
    json_decref(json);
    return status;
}

wd_status wd_student_config_check(const wd_dit_config *student, const wd_dit_config *teacher,
                                  wd_err *err)
{
    const struct {
        const char *what;
        int64_t student, teacher;
        bool may_be_less;
    } rule[] = {
        {"depth", student->layers, teacher->layers, true},
        {"hidden_size", wd_dit_width(student), wd_dit_width(teacher), true},
        {"ffn_dim", student->ffn_dim, teacher->ffn_dim, true},
        {"attention_head_dim", student->head_dim, teacher->head_dim, false},
        {"in_channels", student->in_channels, teacher->in_channels, false},
        {"out_channels", student->out_channels, teacher->out_channels, false},
        {"text_dim", student->text_dim, teacher->text_dim, false},
        {"freq_dim", student->freq_dim, teacher->freq_dim, false},
        {"patch_size[0]", student->patch[0], teacher->patch[0], false},
        {"patch_size[1]", student->patch[1], teacher->patch[1], false},
        {"patch_size[2]", student->patch[2], teacher->patch[2], false},
        {"cross_attn_norm", student->cross_attn_norm, teacher->cross_attn_norm, false},
    };
    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++) {
        if (rule[i].student == rule[i].teacher) continue;
        if (rule[i].may_be_less && rule[i].student < rule[i].teacher) continue;
        if (rule[i].may_be_less) {
            return wd_fail(err, WD_UNSUPPORTED,
                           "%s of the student is %lld, but the teacher's is %lld; a student takes "
                           "its first weights from the teacher, so it can be at most as large: "
                           "choose %lld or less",
                           rule[i].what, (long long)rule[i].student, (long long)rule[i].teacher,
                           (long long)rule[i].teacher);
        }
        return wd_fail(err, WD_MISMATCH,
                       "%s of the student is %lld, but the teacher's is %lld; "
                       "they must be equal",
                       rule[i].what, (long long)rule[i].student, (long long)rule[i].teacher);
    }
    return WD_OK;
}
