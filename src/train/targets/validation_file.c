/* The states of validation in a file, so that a resumed run, and other runs with the same teacher
 * and prompts, need not make them again. Tensors, all float32:
 *
 *   latents, target   [levels, trajectories, state_count]
 *   sigma, timestep   [levels]
 *
 * Its metadata have the format, the key of what the states are of, and a checksum of all values.
 * The file is mapped and not trusted: what does not agree is an error, and the states are made
 * anew. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "io/file/file.h"
#include "io/tensors/safetensors.h"
#include "train/targets/validation_states.h"

/* The format with its version, which is raised when the meaning of a file changes. */
static const char format[] = "wandistiller validation 1";

enum { CHECKSUM_TEXT = 17 };

static size_t count_of(const wd_validation_states *s)
{
    return (size_t)(s->levels * s->trajectories * s->options.state_count);
}

static void checksum(char out[CHECKSUM_TEXT], const wd_validation_states *s)
{
    const size_t bytes = count_of(s) * sizeof(float), levels = (size_t)s->levels * sizeof(float);
    XXH64_hash_t hash = XXH3_64bits(s->latents, bytes);
    hash = XXH3_64bits_withSeed(s->target, bytes, hash);
    hash = XXH3_64bits_withSeed(s->sigma, levels, hash);
    hash = XXH3_64bits_withSeed(s->timestep, levels, hash);
    snprintf(out, CHECKSUM_TEXT, "%016" PRIx64, (uint64_t)hash);
}

wd_status wd_validation_states_save(const wd_validation_states *s, const char *path,
                                    const char *key, wd_err *err)
{
    wd_status status;
    wd_safetensors_writer *writer;
    char sum[CHECKSUM_TEXT];
    const int64_t width = s->options.state_count;
    const wd_safetensors_item item[] = {{"latents", WD_F32, 3, {s->levels, s->trajectories, width}},
                                        {"target", WD_F32, 3, {s->levels, s->trajectories, width}},
                                        {"sigma", WD_F32, 1, {s->levels}},
                                        {"timestep", WD_F32, 1, {s->levels}}};
    const size_t bytes = count_of(s) * sizeof(float), levels = (size_t)s->levels * sizeof(float);
    checksum(sum, s);
    const char *const metadata[] = {"format", format, "key", key, "checksum", sum, NULL};
    WD_TRY(wd_safetensors_create_unnamed(&writer, path, item, 4, metadata, err));
    WD_TRY_OUT(wd_safetensors_put(writer, s->latents, bytes, err));
    WD_TRY_OUT(wd_safetensors_put(writer, s->target, bytes, err));
    WD_TRY_OUT(wd_safetensors_put(writer, s->sigma, levels, err));
    WD_TRY_OUT(wd_safetensors_put(writer, s->timestep, levels, err));
    return wd_safetensors_finish(writer, err);
out:
    wd_safetensors_abandon(writer);
    return status;
}

static wd_status damaged(const char *path, const char *why, wd_err *err)
{
    return wd_fail(err, WD_BAD_FORMAT, "%s: %s", path, why);
}

/* Copies a tensor of the shape that the states have. */
static wd_status take(float *out, const wd_safetensors *set, const char *path, const char *name,
                      const int64_t *dim, int ndim, wd_err *err)
{
    const wd_safetensors_entry *e = wd_safetensors_find(set, name);
    size_t count = 1;
    bool fits = e && e->tensor.dtype == WD_F32 && e->tensor.ndim == ndim;
    for (int k = 0; k < ndim; k++) {
        fits = fits && e->tensor.dim[k] == dim[k];
        count *= (size_t)dim[k];
    }
    if (!fits) return damaged(path, "has not the tensors of these states", err);
    memcpy(out, e->tensor.data, count * sizeof *out);
    return WD_OK;
}

static bool says(const wd_safetensors *set, const char *key, const char *expected)
{
    const char *found = wd_safetensors_metadata(set, key);
    return found && !strcmp(found, expected);
}

static wd_status read_all(wd_validation_states *s, const wd_safetensors *set, const char *path,
                          const char *key, wd_err *err)
{
    char sum[CHECKSUM_TEXT];
    float levels[2][WD_VALIDATION_LEVELS_MAX];
    const int64_t dim[] = {s->levels, s->trajectories, s->options.state_count};
    const size_t bytes = (size_t)s->levels * sizeof(float);
    if (!says(set, "format", format) || !says(set, "key", key))
        return damaged(path, "is of other states, or of another version of this program", err);
    WD_TRY(take(s->latents, set, path, "latents", dim, 3, err));
    WD_TRY(take(s->target, set, path, "target", dim, 3, err));
    WD_TRY(take(levels[0], set, path, "sigma", dim, 1, err));
    WD_TRY(take(levels[1], set, path, "timestep", dim, 1, err));
    checksum(sum, s);
    if (memcmp(levels[0], s->sigma, bytes) || memcmp(levels[1], s->timestep, bytes))
        return damaged(path, "has other noise levels", err);
    if (!says(set, "checksum", sum)) return damaged(path, "its checksum is wrong", err);
    for (size_t i = 0; i < count_of(s); i++)
        if (!isfinite(s->latents[i]) || !isfinite(s->target[i]))
            return damaged(path, "has values that are not finite", err);
    return WD_OK;
}

wd_status wd_validation_states_load(wd_validation_states *s, const char *path, const char *key,
                                    wd_err *err)
{
    wd_safetensors *set;
    if (!wd_path_exists(path)) return wd_fail(err, WD_NOT_FOUND, "%s: is not there", path);
    WD_TRY(wd_safetensors_open(&set, path, err));
    const wd_status status = read_all(s, set, path, key, err);
    wd_safetensors_close(set);
    return status;
}
