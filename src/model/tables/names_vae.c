/* Original names of the VAE's tensors: see model/tables/names.h.
 *
 * The original numbers what is computed one after the other (nn.Sequential): a residual block's
 * norms and convolutions are its layers 0, 2, 3 and 6, and the 2.1 layout numbers the blocks of all
 * levels of the decoder in one list. The 2.2 layout has a list per level. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tables/names.h"

typedef struct pair {
    const char *diffusers, *original; /* beginnings */
} pair;

static const pair outside[] = {
    {"quant_conv.", "conv1."},
    {"post_quant_conv.", "conv2."},
};

/* Behind "encoder." or "decoder.". */
static const pair in_part[] = {
    {"conv_in.", "conv1."},
    {"norm_out.", "head.0."},
    {"conv_out.", "head.2."},
    {"mid_block.resnets.0.", "middle.0."},
    {"mid_block.attentions.0.", "middle.1."},
    {"mid_block.resnets.1.", "middle.2."},
};

static const pair in_resnet[] = {
    {"norm1.", "residual.0."}, {"conv1.", "residual.2."},       {"norm2.", "residual.3."},
    {"conv2.", "residual.6."}, {"conv_shortcut.", "shortcut."},
};

/* The original name of what `name` begins with, *rest what is behind; NULL: none of the pairs. */
static const char *match(const char **rest, const char *name, const pair *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(pairs[i].diffusers);
        if (strncmp(name, pairs[i].diffusers, length)) continue;
        *rest = name + length;
        return pairs[i].original;
    }
    return NULL;
}

/* Writes `before`, and what the original calls a tensor within a block: of an attention or a
 * resampling its own name. */
static bool put_inner(char *out, size_t bytes, const char *before, const char *name)
{
    const char *rest = name;
    const char *own = match(&rest, name, in_resnet, sizeof in_resnet / sizeof *in_resnet);
    const int written = snprintf(out, bytes, "%s%s%s", before, own ? own : "", rest);
    return written >= 0 && (size_t)written < bytes;
}

/* A layer of a level of the 2.1 decoder, or of either part of the 2.2 layout: `at` is its place
 * within the level, `name` what is behind. */
static bool put_layer(char *out, size_t bytes, bool decoder, long level, long at, const char *name,
                      const wd_vae_config *config)
{
    char before[64];
    const char *list = decoder ? "upsamples" : "downsamples";
    if (config->is_residual)
        snprintf(before, sizeof before, "%s.%s.%ld.%s.%ld.", decoder ? "decoder" : "encoder", list,
                 level, list, at);
    else
        snprintf(before, sizeof before, "decoder.upsamples.%ld.",
                 level * ((long)config->num_res_blocks + 2) + at);
    return put_inner(out, bytes, before, name);
}

/* "<number>." at the beginning of *text; moves behind it. -1: there is none. */
static long take_number(const char **text)
{
    const size_t digits = strspn(*text, "0123456789");
    if (!digits || digits > 6 || (*text)[digits] != '.') return -1;
    const long number = strtol(*text, NULL, 10);
    *text += digits + 1;
    return number;
}

/* Moves *text behind `beginning`; false: it does not begin so. */
static bool skip(const char **text, const char *beginning)
{
    const size_t length = strlen(beginning);
    if (strncmp(*text, beginning, length)) return false;
    *text += length;
    return true;
}

/* `name`: behind "up_blocks." or "down_blocks.". */
static bool in_levels(char *out, size_t bytes, bool decoder, const char *name,
                      const wd_vae_config *config)
{
    char before[64];
    const long level = take_number(&name);
    if (level < 0) return false;
    if (!decoder && !config->is_residual) { /* diffusers numbers these as the original does */
        snprintf(before, sizeof before, "encoder.downsamples.%ld.", level);
        return put_inner(out, bytes, before, name);
    }
    const long resampling = (long)config->num_res_blocks + (decoder ? 1 : 0);
    if (skip(&name,
             decoder ? config->is_residual ? "upsampler." : "upsamplers.0." : "downsampler."))
        return put_layer(out, bytes, decoder, level, resampling, name, config);
    if (!skip(&name, "resnets.")) return false;
    const long at = take_number(&name);
    return at >= 0 && put_layer(out, bytes, decoder, level, at, name, config);
}

bool wd__names_vae_to_original(char *out, size_t bytes, const char *name,
                               const wd_vae_config *config)
{
    char before[64];
    const char *rest = name;
    const char *own = match(&rest, name, outside, sizeof outside / sizeof *outside);
    if (own) return put_inner(out, bytes, own, rest);
    const bool decoder = skip(&name, "decoder.");
    if (!decoder && !skip(&name, "encoder.")) return false;
    own = match(&rest, name, in_part, sizeof in_part / sizeof *in_part);
    if (own) {
        snprintf(before, sizeof before, "%s.%s", decoder ? "decoder" : "encoder", own);
        return put_inner(out, bytes, before, rest);
    }
    if (!skip(&name, decoder ? "up_blocks." : "down_blocks.")) return false;
    return in_levels(out, bytes, decoder, name, config);
}
