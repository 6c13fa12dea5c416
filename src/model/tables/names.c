/* Tensor names: see model/tables/names.h. The pairs are those of diffusers'
 * convert_wan_to_diffusers.py for text-to-video models. Note that the affine norm before
 * cross-attention is norm2 in diffusers and norm3 in the original; the other norms have no
 * parameters. */
#include "model/tables/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pair {
    const char *diffusers, *original; /* whole names, or prefixes if they end with a dot */
} pair;

static const pair outside[] = {
    {"patch_embedding.", "patch_embedding."},
    {"condition_embedder.time_embedder.linear_1.", "time_embedding.0."},
    {"condition_embedder.time_embedder.linear_2.", "time_embedding.2."},
    {"condition_embedder.time_proj.", "time_projection.1."},
    {"condition_embedder.text_embedder.linear_1.", "text_embedding.0."},
    {"condition_embedder.text_embedder.linear_2.", "text_embedding.2."},
    {"proj_out.", "head.head."},
    {"scale_shift_table", "head.modulation"},
};

/* Names after "blocks.<i>.". */
static const pair in_block[] = {
    {"scale_shift_table", "modulation"},     {"attn1.to_q.", "self_attn.q."},
    {"attn1.to_k.", "self_attn.k."},         {"attn1.to_v.", "self_attn.v."},
    {"attn1.to_out.0.", "self_attn.o."},     {"attn1.norm_q.", "self_attn.norm_q."},
    {"attn1.norm_k.", "self_attn.norm_k."},  {"attn2.to_q.", "cross_attn.q."},
    {"attn2.to_k.", "cross_attn.k."},        {"attn2.to_v.", "cross_attn.v."},
    {"attn2.to_out.0.", "cross_attn.o."},    {"attn2.norm_q.", "cross_attn.norm_q."},
    {"attn2.norm_k.", "cross_attn.norm_k."}, {"norm2.", "norm3."},
    {"ffn.net.0.proj.", "ffn.0."},           {"ffn.net.2.", "ffn.2."},
};

/* Writes `block` followed by the original name of `name`: the prefix of `name` is replaced by its
 * pair, and "weight" or "bias" after it stays. */
static bool translate(char *out, size_t bytes, const char *name, const pair *pairs, size_t count,
                      const char *block, int block_length)
{
    for (size_t i = 0; i < count; i++) {
        const char *from = pairs[i].diffusers;
        size_t length = strlen(from);
        if (strncmp(name, from, length)) continue;
        const char *rest = name + length;
        bool whole = from[length - 1] != '.';
        if (whole ? *rest : strcmp(rest, "weight") && strcmp(rest, "bias")) continue;
        snprintf(out, bytes, "%.*s%s%s", block_length, block, pairs[i].original, rest);
        return true;
    }
    return false;
}

bool wd_names_to_original(char *out, size_t bytes, const char *name)
{
    static const char blocks[] = "blocks.";
    if (strncmp(name, blocks, sizeof blocks - 1))
        return translate(out, bytes, name, outside, sizeof outside / sizeof *outside, "", 0);
    size_t digits = strspn(name + sizeof blocks - 1, "0123456789");
    size_t length = sizeof blocks - 1 + digits + 1;
    if (!digits || name[length - 1] != '.') return false;
    return translate(out, bytes, name + length, in_block, sizeof in_block / sizeof *in_block, name,
                     (int)length);
}

/* Parts of tensor names that only other architectures have. */
static const struct {
    const char *part, *architecture;
} foreign[] = {
    {"image_embedder.", "an image-to-video model"}, {".add_k_proj.", "an image-to-video model"},
    {".add_v_proj.", "an image-to-video model"},    {".norm_added_k.", "an image-to-video model"},
    {"img_emb.", "an image-to-video model"},        {".k_img.", "an image-to-video model"},
    {".v_img.", "an image-to-video model"},         {"vace_", "a VACE model"},
    {"face_adapter.", "an animation model"},        {"motion_encoder.", "an animation model"},
    {"lora_", "a LoRA that is not merged"},
};

const char *wd_names_foreign(const char *name)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (strstr(name, foreign[i].part)) return foreign[i].architecture;
    }
    return NULL;
}

/* ---- the VAE ----
 *
 * The original numbers what is computed one after the other (nn.Sequential): a residual block's
 * norms and convolutions are its layers 0, 2, 3 and 6, and the 2.1 layout numbers the blocks of all
 * levels of the decoder in one list. The 2.2 layout has a list per level. */

static const pair vae_outside[] = {
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
    const char *own = match(&rest, name, vae_outside, sizeof vae_outside / sizeof *vae_outside);
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

/* ---- the text encoder ---- */

/* Names of transformers, of Wan's original release, and of llama.cpp (gguf-py, tensor_mapping.py).
 */
typedef struct umt5_row {
    const char *transformers, *original, *llama;
} umt5_row;

static const umt5_row umt5_outside[] = {
    {"shared.weight", "token_embedding.weight", "token_embd.weight"},
    {"encoder.final_layer_norm.weight", "norm.weight", "enc.output_norm.weight"},
};

/* Behind "encoder.block.<i>.layer.", "blocks.<i>." and "enc.blk.<i>.". The gate is what GELU is
 * applied to. */
static const umt5_row umt5_in_layer[] = {
    {"0.layer_norm.weight", "norm1.weight", "attn_norm.weight"},
    {"0.SelfAttention.q.weight", "attn.q.weight", "attn_q.weight"},
    {"0.SelfAttention.k.weight", "attn.k.weight", "attn_k.weight"},
    {"0.SelfAttention.v.weight", "attn.v.weight", "attn_v.weight"},
    {"0.SelfAttention.o.weight", "attn.o.weight", "attn_o.weight"},
    {"0.SelfAttention.relative_attention_bias.weight", "pos_embedding.embedding.weight",
     "attn_rel_b.weight"},
    {"1.layer_norm.weight", "norm2.weight", "ffn_norm.weight"},
    {"1.DenseReluDense.wi_0.weight", "ffn.gate.0.weight", "ffn_gate.weight"},
    {"1.DenseReluDense.wi_1.weight", "ffn.fc1.weight", "ffn_up.weight"},
    {"1.DenseReluDense.wo.weight", "ffn.fc2.weight", "ffn_down.weight"},
};

static const char *other_name(const umt5_row *r, bool llama)
{
    return llama ? r->llama : r->original;
}

static bool translate_umt5(char *out, size_t bytes, const char *name, bool llama)
{
    static const char begin[] = "encoder.block.", layer[] = ".layer.";
    for (size_t i = 0; i < sizeof umt5_outside / sizeof *umt5_outside; i++) {
        if (strcmp(name, umt5_outside[i].transformers)) continue;
        snprintf(out, bytes, "%s", other_name(&umt5_outside[i], llama));
        return true;
    }
    if (strncmp(name, begin, sizeof begin - 1)) return false;
    const char *number = name + sizeof begin - 1;
    const int digits = (int)strspn(number, "0123456789");
    if (!digits || strncmp(number + digits, layer, sizeof layer - 1)) return false;
    const char *rest = number + digits + sizeof layer - 1;
    for (size_t i = 0; i < sizeof umt5_in_layer / sizeof *umt5_in_layer; i++) {
        if (strcmp(rest, umt5_in_layer[i].transformers)) continue;
        snprintf(out, bytes, "%s.%.*s.%s", llama ? "enc.blk" : "blocks", digits, number,
                 other_name(&umt5_in_layer[i], llama));
        return true;
    }
    return false;
}

bool wd__names_umt5_to_original(char *out, size_t bytes, const char *name)
{
    return translate_umt5(out, bytes, name, false);
}

bool wd__names_umt5_to_llama(char *out, size_t bytes, const char *name)
{
    return translate_umt5(out, bytes, name, true);
}
