/* Configuration of the VAE: see model/tables/config.h. Defaults are those of diffusers'
 * AutoencoderKLWan. */
#include <inttypes.h>
#include <string.h>

#include "model/tables/config_read.h"

/* Statistics of the 2.1 VAE's latents, for configs without statistics. */
enum { DEFAULT_Z = 16 };
static const double default_mean[DEFAULT_Z] = {-0.7571, -0.7089, -0.9113, 0.1075,  -0.1745, 0.9653,
                                               -0.1517, 1.5508,  0.4134,  -0.0715, 0.5517,  -0.3632,
                                               -0.1922, -0.9497, 0.2503,  -0.2921};
static const double default_std[DEFAULT_Z] = {2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708,
                                              2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579,
                                              1.6382, 1.1253, 2.8251, 1.9160};

/* Reads "temperal_downsample" (the reference's spelling), which has levels - 1 flags. */
static wd_status read_temporal(wd_vae_config *c, wd_json_reader r, wd_err *err)
{
    static const char key[] = "temperal_downsample";
    const json_t *array = json_object_get(r.object, key);
    size_t i, expected = (size_t)c->levels - 1;
    if (!array || json_is_null(array)) {
        if (c->levels == 4) return WD_OK; /* keeps the default */
        return wd_fail(err, WD_BAD_FORMAT, "%s: \"%s\" is missing; its default is for 4 levels",
                       r.where, key);
    }
    bool fine = json_is_array(array) && json_array_size(array) == expected;
    for (i = 0; fine && i < expected; i++) {
        const json_t *value = json_array_get(array, i);
        fine = json_is_boolean(value);
        c->temporal_downsample[i] = json_is_true(value);
    }
    if (fine) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: \"%s\": expected an array of %zu booleans, one less than \"dim_mult\" has",
                   r.where, key, expected);
}

static wd_status read_statistics(double *out, wd_json_reader r, const char *key,
                                 const double *fallback, int64_t z_dim, wd_err *err)
{
    int64_t count = DEFAULT_Z;
    memcpy(out, fallback, DEFAULT_Z * sizeof *out);
    WD_TRY(wd_json_floats(out, &count, WD_VAE_CHANNELS_MAX, r, key, WD_JSON_OPTIONAL, err));
    if (count == z_dim) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: \"%s\": expected %" PRId64 " numbers (\"z_dim\"), found %" PRId64, r.where,
                   key, z_dim, count);
}

/* Checks sizes that follow from each other. A file in which they disagree would give pictures of a
 * size that the pipeline does not expect. */
static wd_status check_factors(const wd_vae_config *c, const char *where, wd_err *err)
{
    int64_t spatial = c->patch_size << (c->levels - 1), temporal = 1;
    for (int64_t i = 0; i < c->levels - 1; i++) temporal <<= c->temporal_downsample[i];
    if (c->scale_factor_spatial != spatial || c->scale_factor_temporal != temporal)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: scale factors %" PRId64 " (spatial) and %" PRId64
                       " (temporal) are stated, but its levels and patch size make %" PRId64
                       " and %" PRId64,
                       where, c->scale_factor_spatial, c->scale_factor_temporal, spatial, temporal);
    int64_t channels = 3 * c->patch_size * c->patch_size;
    if (c->in_channels != channels || c->out_channels != channels)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: \"in_channels\" %" PRId64 " and \"out_channels\" %" PRId64
                       ": expected %" PRId64 " (colour pictures, \"patch_size\" %" PRId64 ")",
                       where, c->in_channels, c->out_channels, channels, c->patch_size);
    for (int64_t i = 0; i < c->z_dim; i++) {
        if (c->latents_std[i] > 0) continue;
        return wd_fail(err, WD_BAD_FORMAT, "%s: \"latents_std\"[%" PRId64 "] is %g, not positive",
                       where, i, c->latents_std[i]);
    }
    return WD_OK;
}

wd_status wd_vae_config_read(wd_vae_config *out, const json_t *json, const char *where, wd_err *err)
{
    static const char *const unsupported[] = {"attn_scales"};
    wd_vae_config c = {.base_dim = 96,
                       .z_dim = DEFAULT_Z,
                       .num_res_blocks = 2,
                       .levels = 4,
                       .dim_mult = {1, 2, 4, 4},
                       .temporal_downsample = {false, true, true},
                       .in_channels = 3,
                       .out_channels = 3,
                       .patch_size = 1,
                       .scale_factor_spatial = 8,
                       .scale_factor_temporal = 4};
    const wd_json_reader r = {json, where};
    WD_TRY(wd__config_check_class(r, "_class_name", "AutoencoderKLWan", WD_JSON_OPTIONAL, err));
    WD_TRY(wd__config_refuse_quantised(r, err));
    WD_TRY(wd__config_refuse_set(r, unsupported, 1, err));
    const struct {
        const char *key;
        int64_t *out, max;
    } integers[] = {
        {"base_dim", &c.base_dim, 4096},
        {"decoder_base_dim", &c.decoder_base_dim, 4096},
        {"z_dim", &c.z_dim, WD_VAE_CHANNELS_MAX},
        {"num_res_blocks", &c.num_res_blocks, 64},
        {"in_channels", &c.in_channels, 4096},
        {"out_channels", &c.out_channels, 4096},
        {"patch_size", &c.patch_size, 16},
        {"scale_factor_spatial", &c.scale_factor_spatial, 4096},
        {"scale_factor_temporal", &c.scale_factor_temporal, 4096},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        WD_TRY(wd_json_int(integers[i].out, r, integers[i].key, 1, integers[i].max,
                           WD_JSON_OPTIONAL, err));
    if (!c.decoder_base_dim) c.decoder_base_dim = c.base_dim;
    WD_TRY(wd_json_bool(&c.is_residual, r, "is_residual", WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_ints(c.dim_mult, &c.levels, WD_VAE_LEVELS_MAX, r, "dim_mult", WD_JSON_OPTIONAL,
                        err));
    for (int64_t i = 0; i < c.levels; i++) {
        if (c.dim_mult[i] >= 1 && c.dim_mult[i] <= 64) continue;
        return wd_fail(err, WD_BAD_FORMAT, "%s: \"dim_mult\": expected integers from 1 to 64",
                       where);
    }
    if (c.levels < 1) return wd_fail(err, WD_BAD_FORMAT, "%s: \"dim_mult\" is empty", where);
    if (!c.is_residual && c.decoder_base_dim < 2) /* upsampling halves the channels */
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: \"base_dim\" or \"decoder_base_dim\" is %" PRId64
                       ", expected at least 2 channels",
                       where, c.decoder_base_dim);
    WD_TRY(read_temporal(&c, r, err));
    WD_TRY(read_statistics(c.latents_mean, r, "latents_mean", default_mean, c.z_dim, err));
    WD_TRY(read_statistics(c.latents_std, r, "latents_std", default_std, c.z_dim, err));
    WD_TRY(check_factors(&c, where, err));
    *out = c;
    return WD_OK;
}
