/* Names of the text encoder's tensors elsewhere: see model/tables/names.h. */
#include <stdio.h>
#include <string.h>

#include "model/tables/names.h"

/* Names of transformers, of Wan's original release, and of llama.cpp (gguf-py, tensor_mapping.py).
 */
typedef struct row {
    const char *transformers, *original, *llama;
} row;

static const row outside[] = {
    {"shared.weight", "token_embedding.weight", "token_embd.weight"},
    {"encoder.final_layer_norm.weight", "norm.weight", "enc.output_norm.weight"},
};

/* Behind "encoder.block.<i>.layer.", "blocks.<i>." and "enc.blk.<i>.". The gate is what GELU is
 * applied to. */
static const row in_layer[] = {
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

static const char *other_name(const row *r, bool llama)
{
    return llama ? r->llama : r->original;
}

static bool translate(char *out, size_t bytes, const char *name, bool llama)
{
    static const char begin[] = "encoder.block.", layer[] = ".layer.";
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        if (strcmp(name, outside[i].transformers)) continue;
        snprintf(out, bytes, "%s", other_name(&outside[i], llama));
        return true;
    }
    if (strncmp(name, begin, sizeof begin - 1)) return false;
    const char *number = name + sizeof begin - 1;
    const int digits = (int)strspn(number, "0123456789");
    if (!digits || strncmp(number + digits, layer, sizeof layer - 1)) return false;
    const char *rest = number + digits + sizeof layer - 1;
    for (size_t i = 0; i < sizeof in_layer / sizeof *in_layer; i++) {
        if (strcmp(rest, in_layer[i].transformers)) continue;
        snprintf(out, bytes, "%s.%.*s.%s", llama ? "enc.blk" : "blocks", digits, number,
                 other_name(&in_layer[i], llama));
        return true;
    }
    return false;
}

bool wd__names_umt5_to_original(char *out, size_t bytes, const char *name)
{
    return translate(out, bytes, name, false);
}

bool wd__names_umt5_to_llama(char *out, size_t bytes, const char *name)
{
    return translate(out, bytes, name, true);
}
