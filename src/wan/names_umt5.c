/* Original names of the text encoder's tensors: see wan/names.h. */
#include <stdio.h>
#include <string.h>

#include "wan/names.h"

typedef struct pair {
    const char *transformers, *original;
} pair;

static const pair outside[] = {
    {"shared.weight", "token_embedding.weight"},
    {"encoder.final_layer_norm.weight", "norm.weight"},
};

/* Behind "encoder.block.<i>.layer." and "blocks.<i>.". The gate is what GELU is applied to. */
static const pair in_layer[] = {
    {"0.layer_norm.weight", "norm1.weight"},
    {"0.SelfAttention.q.weight", "attn.q.weight"},
    {"0.SelfAttention.k.weight", "attn.k.weight"},
    {"0.SelfAttention.v.weight", "attn.v.weight"},
    {"0.SelfAttention.o.weight", "attn.o.weight"},
    {"0.SelfAttention.relative_attention_bias.weight", "pos_embedding.embedding.weight"},
    {"1.layer_norm.weight", "norm2.weight"},
    {"1.DenseReluDense.wi_0.weight", "ffn.gate.0.weight"},
    {"1.DenseReluDense.wi_1.weight", "ffn.fc1.weight"},
    {"1.DenseReluDense.wo.weight", "ffn.fc2.weight"},
};

bool wd_names_umt5_to_original(char *out, size_t bytes, const char *name)
{
    static const char begin[] = "encoder.block.";
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        if (strcmp(name, outside[i].transformers)) continue;
        snprintf(out, bytes, "%s", outside[i].original);
        return true;
    }
    if (strncmp(name, begin, sizeof begin - 1)) return false;
    const char *number = name + sizeof begin - 1;
    const int digits = (int)strspn(number, "0123456789");
    static const char layer[] = ".layer.";
    if (!digits || strncmp(number + digits, layer, sizeof layer - 1)) return false;
    const char *rest = number + digits + sizeof layer - 1;
    for (size_t i = 0; i < sizeof in_layer / sizeof *in_layer; i++) {
        if (strcmp(rest, in_layer[i].transformers)) continue;
        snprintf(out, bytes, "blocks.%.*s.%s", digits, number, in_layer[i].original);
        return true;
    }
    return false;
}
