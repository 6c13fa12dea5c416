/* Reading stores of targets: see train/targets/target_store.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* declares the state, which is on the stack here */
#include <xxhash.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/tensors/safetensors.h"
#include "model/sampling/schedule.h"
#include "train/targets/chord.h"
#include "train/targets/target_store.h"
#include "train/targets/target_store_impl.h"

/* One file of targets. */
typedef struct store_file {
    wd_safetensors *set;
    const wd_safetensors_entry *targets;
    const int64_t *prompt;         /* [count], mapped, as all that follows */
    const float *sigma, *timestep; /* [count] */
    const uint8_t *checksum;       /* [count, 8] */
    int64_t first, count;
} store_file;

struct wd_target_store {
    char folder[WD_PATH_MAX], key[WD_STORE_KEY_MAX];
    json_t *manifest;
    wd_trajectory_options trajectory;
    wd_store_shape shape;
    store_file *file; /* [files] */
    int64_t files, count;
    uint8_t *checked; /* [count] */
};

/* ---- names and values of files ---- */

static const char prefix[] = "targets-", suffix[] = ".safetensors";

void wd__store_file_name(char out[WD_STORE_NAME_MAX], int64_t first)
{
    snprintf(out, WD_STORE_NAME_MAX, "%s%012" PRId64 "%s", prefix, first, suffix);
}

int64_t wd__store_file_first(const char *name)
{
    char same[WD_STORE_NAME_MAX];
    const size_t begin = strlen(prefix);
    if (strncmp(name, prefix, begin) || strspn(name + begin, "0123456789") != 12) return -1;
    const int64_t first = strtoll(name + begin, NULL, 10);
    wd__store_file_name(same, first);
    return strcmp(name, same) ? -1 : first;
}

int wd__store_is_file(const struct dirent *entry)
{
    return wd__store_file_first(entry->d_name) >= 0;
}

int wd__store_file_order(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

void wd__store_checksum(uint8_t out[WD_STORE_CHECKSUM_BYTES], const uint16_t *target, int64_t count,
                        float sigma, float timestep, int64_t prompt)
{
    XXH3_state_t state;
    XXH64_canonical_t bytes;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, target, 2 * (size_t)count * sizeof *target);
    XXH3_64bits_update(&state, &sigma, sizeof sigma);
    XXH3_64bits_update(&state, &timestep, sizeof timestep);
    XXH3_64bits_update(&state, &prompt, sizeof prompt);
    XXH64_canonicalFromHash(&bytes, XXH3_64bits_digest(&state));
    memcpy(out, bytes.digest, WD_STORE_CHECKSUM_BYTES);
}

bool wd__store_is_finite(const uint16_t *value, int64_t count)
{
    enum { EXPONENT = 0x7f80 };
    int not_finite = 0;
    for (int64_t i = 0; i < count; i++) not_finite |= (value[i] & EXPONENT) == EXPONENT;
    return !not_finite;
}

/* ---- targets.json ---- */

/* ---- what a store says of its trajectories: "trajectory" of its targets.json ---- */

/* As options allow, which keeps numbers of targets far within int64_t. */
enum { SLOTS_MAX = 65536, STEPS_MAX = 1000, TIMESTEPS_MAX = 1 << 24 };

/* A new array of the given noise levels; empty where there are none. NULL: no memory. */
static json_t *sigmas_of(const wd_trajectory_options *t)
{
    json_t *out = json_array();
    for (int64_t k = 0; out && t->sigma[0] > 0 && k < t->steps; k++)
        if (json_array_append_new(out, json_real((double)t->sigma[k]))) {
            json_decref(out);
            return NULL;
        }
    return out;
}

wd_status wd__store_trajectory_json(json_t **out, const wd_trajectory_options *t, wd_err *err)
{
    *out =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:I, s:b, s:o}", "seed",
                  (json_int_t)t->seed, "trajectories", (json_int_t)t->slots, "trajectory_steps",
                  (json_int_t)t->steps, "student_steps", (json_int_t)t->student_steps, "chords",
                  (json_int_t)wd_chords(t), "on_policy_share", t->on_policy_share, "diversity_gain",
                  t->diversity_gain, "prompts", (json_int_t)t->prompts, "flow_shift", t->flow_shift,
                  "num_train_timesteps", (json_int_t)t->num_train_timesteps, "integer_timesteps",
                  (int)t->integer_timesteps, "trajectory_sigmas", sigmas_of(t));
    return *out ? WD_OK : wd_fail(err, WD_OUT_OF_MEMORY, "no memory for what targets are of");
}

static wd_status read_sigmas(wd_trajectory_options *t, wd_json_reader r, wd_err *err)
{
    double sigma[WD_TRAJECTORY_SIGMAS_MAX] = {0};
    int64_t count = 0;
    WD_TRY(wd_json_floats(sigma, &count, WD_TRAJECTORY_SIGMAS_MAX, r, "trajectory_sigmas",
                          WD_JSON_REQUIRED, err));
    if (!count) return WD_OK;
    bool falls = count == t->steps && sigma[0] == 1;
    for (int64_t k = 0; k < count; k++) {
        t->sigma[k] = (float)sigma[k];
        falls &= t->sigma[k] > 0 && (!k || t->sigma[k] < t->sigma[k - 1]);
    }
    if (falls) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: trajectory_sigmas: expected %" PRId64
                   " numbers that fall from 1 and stay above 0, as trajectory_steps says, found "
                   "others",
                   r.where, t->steps);
}

/* Chords divide a trajectory, and a student's steps a chord. */
static wd_status check_chords(const wd_trajectory_options *t, const char *where, wd_err *err)
{
    const int64_t chords = t->chords;
    const bool none = !t->student_steps && !chords && !(t->diversity_gain > 0);
    const bool fit = chords > 0 && t->steps % chords == 0 && t->student_steps > 0 &&
                     t->student_steps % chords == 0 && t->steps / chords <= WD_CHORD_STEPS_MAX;
    const bool paired = !(t->diversity_gain > 0) || t->slots % (2 * t->steps) == 0;
    if (none || (fit && paired)) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: %" PRId64 " trajectories of %" PRId64 " steps with student_steps %" PRId64
                   ", chords %" PRId64 " and diversity_gain %g: no run has such ones",
                   where, t->slots, t->steps, t->student_steps, chords, t->diversity_gain);
}

static wd_status read_shares(wd_trajectory_options *t, wd_json_reader r, wd_err *err)
{
    WD_TRY(wd_json_float(&t->on_policy_share, r, "on_policy_share", WD_JSON_REQUIRED, err));
    WD_TRY(wd_json_float(&t->diversity_gain, r, "diversity_gain", WD_JSON_REQUIRED, err));
    WD_TRY(wd_json_float(&t->flow_shift, r, "flow_shift", WD_JSON_REQUIRED, err));
    const bool shares = t->on_policy_share >= 0 && t->on_policy_share <= 1 &&
                        t->diversity_gain >= 0 && t->diversity_gain <= 1;
    if (shares && t->flow_shift >= 1e-3 && t->flow_shift <= 1e4) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: expected an on_policy_share and a diversity_gain from 0 to 1 and a "
                   "flow_shift from 0.001 to 10000, found %g, %g and %g",
                   r.where, t->on_policy_share, t->diversity_gain, t->flow_shift);
}

/* Reads and checks such an object, whose file is `where`: with *out all functions of trajectory.h
 * and chord.h may be called. */
static wd_status read_trajectory(wd_trajectory_options *out, const json_t *object,
                                 const char *where, wd_err *err)
{
    int64_t seed = 0;
    wd_trajectory_options t = {.on_policy_end = 1};
    const wd_json_reader r = {.object = object, .where = where};
    const wd_json_need need = WD_JSON_REQUIRED;
    if (!json_is_object(object))
        return wd_fail(err, WD_BAD_FORMAT, "%s: \"trajectory\": expected an object", where);
    WD_TRY(wd_json_int(&seed, r, "seed", INT64_MIN, INT64_MAX, need, err));
    WD_TRY(wd_json_int(&t.slots, r, "trajectories", 1, SLOTS_MAX, need, err));
    WD_TRY(wd_json_int(&t.steps, r, "trajectory_steps", 1, STEPS_MAX, need, err));
    WD_TRY(
        wd_json_int(&t.student_steps, r, "student_steps", 0, WD_SCHEDULE_FEW_STEPS_MAX, need, err));
    WD_TRY(wd_json_int(&t.chords, r, "chords", 0, STEPS_MAX, need, err));
    WD_TRY(wd_json_int(&t.prompts, r, "prompts", 1, INT64_C(1) << 40, need, err));
    WD_TRY(
        wd_json_int(&t.num_train_timesteps, r, "num_train_timesteps", 1, TIMESTEPS_MAX, need, err));
    WD_TRY(wd_json_bool(&t.integer_timesteps, r, "integer_timesteps", need, err));
    WD_TRY(read_shares(&t, r, err));
    WD_TRY(check_chords(&t, where, err));
    WD_TRY(read_sigmas(&t, r, err));
    t.seed = (uint64_t)seed;
    *out = t;
    return WD_OK;
}

static wd_status read_shape(wd_store_shape *out, wd_json_reader r, wd_err *err)
{
    enum { DIM_MAX = 1 << 14 };
    int64_t dim[3] = {0}, count = 0;
    WD_TRY(wd_json_ints(dim, &count, 3, r, "latents", WD_JSON_REQUIRED, err));
    bool fits = count == 3;
    for (int i = 0; i < 3; i++) fits = fits && dim[i] > 0 && dim[i] <= DIM_MAX;
    *out = (wd_store_shape){dim[0], dim[1], dim[2]};
    if (fits && wd_store_state_count(out) <= WD_STORE_FILE_BYTES) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: latents: expected channels, height and width of a state, found other "
                   "values",
                   r.where);
}

static wd_status make_key(wd_target_store *s, wd_err *err)
{
    char *text = json_dumps(s->manifest, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory for it", s->folder);
    snprintf(s->key, sizeof s->key, "%016llx", (unsigned long long)XXH3_64bits(text, strlen(text)));
    free(text); /* jansson's */
    return WD_OK;
}

static wd_status read_manifest(wd_target_store *s, wd_err *err)
{
    char path[WD_PATH_MAX];
    const char *format = "";
    WD_TRY(wd_path_join(path, s->folder, WD_STORE_MANIFEST, err));
    if (!wd_path_exists(path))
        return wd_fail(err, WD_NOT_FOUND,
                       "%s: expected a folder of targets, which has a %s, as --save_targets writes "
                       "it, found %s",
                       s->folder, WD_STORE_MANIFEST,
                       wd_path_exists(s->folder) ? "none in it" : "no such folder");
    WD_TRY(wd_json_load(&s->manifest, path, err));
    const wd_json_reader r = {.object = s->manifest, .where = path};
    WD_TRY(wd_json_text(&format, r, "format", WD_JSON_REQUIRED, err));
    if (strcmp(format, WD_STORE_FORMAT))
        return wd_fail(err, WD_MISMATCH,
                       "%s: expected the format \"%s\", found \"%.*s\": it was written by another "
                       "version of this program",
                       path, WD_STORE_FORMAT, WD_TERMINAL_SAFE(format, 60));
    WD_TRY(read_shape(&s->shape, r, err));
    WD_TRY(make_key(s, err));
    return read_trajectory(&s->trajectory, json_object_get(s->manifest, "trajectory"), path, err);
}

/* ---- files of targets ---- */

/* The data of a tensor of `count` rows of that shape; NULL: the file has no such one. */
static const void *rows_of(const wd_safetensors *set, const char *name, wd_dtype dtype, int ndim,
                           const int64_t *dim)
{
    const wd_safetensors_entry *e = wd_safetensors_find(set, name);
    if (!e || e->tensor.dtype != dtype || e->tensor.ndim != ndim || e->unaligned) return NULL;
    for (int i = 0; i < ndim; i++)
        if (e->tensor.dim[i] != dim[i]) return NULL;
    return e->tensor.data;
}

static wd_status read_file(store_file *f, const wd_target_store *s, const char *path, wd_err *err)
{
    const wd_store_shape *shape = &s->shape;
    f->targets = wd_safetensors_find(f->set, "targets");
    f->count = f->targets && f->targets->tensor.ndim ? f->targets->tensor.dim[0] : 0;
    const int64_t dim[] = {f->count, 2, shape->channels, shape->height, shape->width};
    const int64_t checksums[] = {f->count, WD_STORE_CHECKSUM_BYTES};
    f->prompt = rows_of(f->set, "prompt", WD_I64, 1, dim);
    f->sigma = rows_of(f->set, "sigma", WD_F32, 1, dim);
    f->timestep = rows_of(f->set, "timestep", WD_F32, 1, dim);
    f->checksum = rows_of(f->set, "checksum", WD_U8, 2, checksums);
    if (f->count > 0 && rows_of(f->set, "targets", WD_BF16, 5, dim) && f->prompt && f->sigma &&
        f->timestep && f->checksum)
        return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: expected targets BF16 [n, 2, %" PRId64 ", %" PRId64 ", %" PRId64
                   "], prompt I64 [n], sigma and timestep F32 [n] and checksum U8 [n, 8], found "
                   "other tensors: it is damaged",
                   path, shape->channels, shape->height, shape->width);
}

/* Opens the next file, which must go on where the one before it ends. */
static wd_status add_file(wd_target_store *s, const char *name, wd_err *err)
{
    char path[WD_PATH_MAX];
    store_file *f = &s->file[s->files];
    WD_TRY(wd_path_join(path, s->folder, name, err));
    f->first = wd__store_file_first(name);
    if (f->first != s->count)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: expected a file that begins with target %" PRId64
                       ", found %s: a file is missing, copy the whole folder again",
                       s->folder, s->count, name);
    WD_TRY(wd_safetensors_open(&f->set, path, err));
    s->files++;
    WD_TRY(read_file(f, s, path, err));
    s->count += f->count;
    return WD_OK;
}

static wd_status open_files(wd_target_store *s, wd_err *err)
{
    wd_status status;
    wd_folder_list list = {0};
    WD_TRY_OUT(wd_folder_list_open(&list, s->folder, wd__store_is_file, wd__store_file_order, err));
    if (!list.count) {
        status = wd_fail(err, WD_BAD_FORMAT,
                         "%s: expected files targets-....safetensors, found none", s->folder);
        goto out;
    }
    WD_TRY_OUT(wd_alloc((void **)&s->file, (size_t)list.count, sizeof *s->file, "a store", err));
    for (int i = 0; i < list.count; i++) WD_TRY_OUT(add_file(s, list.entry[i]->d_name, err));
    status = wd_alloc((void **)&s->checked, (size_t)s->count, 1, "a store of targets", err);
out:
    wd_folder_list_close(&list);
    return status;
}

wd_status wd_target_store_open(wd_target_store **out, const char *folder, wd_err *err)
{
    wd_status status;
    wd_target_store *s;
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "a store of targets", err));
    WD_TRY_OUT(wd_path_join(s->folder, "", folder, err));
    WD_TRY_OUT(read_manifest(s, err));
    WD_TRY_OUT(open_files(s, err));
    *out = s;
out:
    if (status != WD_OK) wd_target_store_close(s);
    return status;
}

void wd_target_store_close(wd_target_store *s)
{
    if (!s) return;
    for (int64_t i = 0; i < s->files; i++) wd_safetensors_close(s->file[i].set);
    json_decref(s->manifest);
    wd_free(s->file);
    wd_free(s->checked);
    wd_free(s);
}

/* ---- what there is ---- */

const char *wd_target_store_folder(const wd_target_store *s)
{
    return s->folder;
}

int64_t wd_target_store_count(const wd_target_store *s)
{
    return s->count;
}

uint64_t wd_target_store_bytes(const wd_target_store *s)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < s->files; i++) bytes += wd_safetensors_file_bytes(s->file[i].set);
    return bytes;
}

const wd_store_shape *wd_target_store_shape(const wd_target_store *s)
{
    return &s->shape;
}

const wd_trajectory_options *wd_target_store_trajectory(const wd_target_store *s)
{
    return &s->trajectory;
}

const json_t *wd_target_store_run(const wd_target_store *s)
{
    return json_object_get(s->manifest, "run");
}

const char *wd_target_store_key(const wd_target_store *s)
{
    return s->key;
}

/* ---- targets ---- */

/* The file that has a target, by bisection. */
static const store_file *file_of(const wd_target_store *s, int64_t target)
{
    int64_t low = 0, high = s->files - 1;
    WD_REQUIRE(target >= 0 && target < s->count,
               "target %" PRId64 " is not among the %" PRId64 " of a store", target, s->count);
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (s->file[middle].first <= target)
            low = middle;
        else
            high = middle - 1;
    }
    return &s->file[low];
}

const uint16_t *wd__target_store_state(const wd_target_store *s, int64_t target)
{
    const store_file *f = file_of(s, target);
    const uint16_t *all = f->targets->tensor.data;
    return all + 2 * (target - f->first) * wd_store_state_count(&s->shape);
}

const uint16_t *wd__target_store_velocity(const wd_target_store *s, int64_t target)
{
    return wd__target_store_state(s, target) + wd_store_state_count(&s->shape);
}

void wd__target_store_will_need(const wd_target_store *s, int64_t target)
{
    const store_file *f = file_of(s, target);
    wd_safetensors_entry one = *f->targets;
    one.tensor.dim[0] = 1;
    one.tensor.data = (void *)(uintptr_t)wd__target_store_state(s, target);
    if (!s->checked[target]) wd_safetensors_will_need(&one);
}

bool wd__target_store_is_checked(const wd_target_store *s, int64_t target)
{
    return target >= 0 && target < s->count && s->checked[target];
}

/* What is wrong with a target; NULL: nothing. */
static const char *fault_of(const wd_target_store *s, const store_file *f, int64_t target)
{
    static const float close = 1e-5f; /* of sigma, whose last bits are a machine's own */
    uint8_t checksum[WD_STORE_CHECKSUM_BYTES];
    const int64_t i = target - f->first, n = wd_store_state_count(&s->shape);
    const uint16_t *data = wd__target_store_state(s, target);
    const float sigma = f->sigma[i], timestep = f->timestep[i];
    const int64_t prompt = f->prompt[i];
    const wd_target_info info = wd__trajectory_target(&s->trajectory, target);
    wd__store_checksum(checksum, data, n, sigma, timestep, prompt);
    if (memcmp(checksum, f->checksum + i * WD_STORE_CHECKSUM_BYTES, sizeof checksum))
        return "its checksum differs";
    if (!wd__store_is_finite(data, 2 * n)) return "it has values that are not finite";
    if (!(sigma > 0 && sigma <= 1)) return "its sigma is not in (0, 1]";
    if (prompt < 0 || prompt >= s->trajectory.prompts) return "there is no such prompt";
    const float off = sigma > info.sigma ? sigma - info.sigma : info.sigma - sigma;
    if (off > close || prompt != info.prompt)
        return "its sigma or its prompt are not those of the trajectories of targets.json";
    return NULL;
}

wd_status wd__target_store_check(wd_target_store *s, int64_t target, wd_err *err)
{
    const store_file *f = file_of(s, target);
    if (s->checked[target]) return WD_OK;
    const char *fault = fault_of(s, f, target);
    s->checked[target] = !fault;
    if (!fault) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: target %" PRId64 ": %s: the file is damaged, copy it again or make the "
                   "targets again",
                   f->targets->file, target, fault);
}
