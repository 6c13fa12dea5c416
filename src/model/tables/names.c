/* Tensor names: see model/tables/names.h. The pairs are those of diffusers'
 * convert_wan_to_diffusers.py for text-to-video models. Note that the affine norm before
 * cross-attention is norm2 in diffusers and norm3 in the original; the other norms have no
 * parameters. */
#include "model/tables/names.h"

#include <stdio.h>
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
