/* The tensor table of the Wan transformer: see model/tables/dit_table.h. Shapes as
 * transformer_wan.py of diffusers builds them. */
#include "model/tables/dit_table.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

/* The extents that occur in shapes. */
typedef enum extent { ONE, TWO, SIX, D, D6, E, FREQ, TEXT, IN, PF, PH, PW, OUT, EXTENTS } extent;

typedef struct shape {
    int ndim;
    extent dim[5];
} shape;

#define X(slot, name) name,
static const char *const embed_names[] = {WD_DIT_EMBED_MAP(X)};
static const char *const block_names[] = {WD_DIT_BLOCK_MAP(X)};
static const char *const head_names[] = {WD_DIT_HEAD_MAP(X)};
#undef X

static const shape embed_shapes[WD_DIT_EMBED_SLOTS] = {
    [WD_DIT_EMBED_PATCH_W] = {5, {D, IN, PF, PH, PW}},
    [WD_DIT_EMBED_PATCH_B] = {1, {D}},
    [WD_DIT_EMBED_TIME1_W] = {2, {D, FREQ}},
    [WD_DIT_EMBED_TIME1_B] = {1, {D}},
    [WD_DIT_EMBED_TIME2_W] = {2, {D, D}},
    [WD_DIT_EMBED_TIME2_B] = {1, {D}},
    [WD_DIT_EMBED_TIME_PROJ_W] = {2, {D6, D}},
    [WD_DIT_EMBED_TIME_PROJ_B] = {1, {D6}},
    [WD_DIT_EMBED_TEXT1_W] = {2, {D, TEXT}},
    [WD_DIT_EMBED_TEXT1_B] = {1, {D}},
    [WD_DIT_EMBED_TEXT2_W] = {2, {D, D}},
    [WD_DIT_EMBED_TEXT2_B] = {1, {D}},
};

static const shape block_shapes[WD_DIT_BLOCK_SLOTS] = {
    [WD_DIT_BLOCK_TABLE] = {3, {ONE, SIX, D}}, [WD_DIT_BLOCK_SELF_Q_W] = {2, {D, D}},
    [WD_DIT_BLOCK_SELF_K_W] = {2, {D, D}},     [WD_DIT_BLOCK_SELF_V_W] = {2, {D, D}},
    [WD_DIT_BLOCK_SELF_Q_B] = {1, {D}},        [WD_DIT_BLOCK_SELF_K_B] = {1, {D}},
    [WD_DIT_BLOCK_SELF_V_B] = {1, {D}},        [WD_DIT_BLOCK_SELF_NORM_Q] = {1, {D}},
    [WD_DIT_BLOCK_SELF_NORM_K] = {1, {D}},     [WD_DIT_BLOCK_SELF_OUT_W] = {2, {D, D}},
    [WD_DIT_BLOCK_SELF_OUT_B] = {1, {D}},      [WD_DIT_BLOCK_NORM2_W] = {1, {D}},
    [WD_DIT_BLOCK_NORM2_B] = {1, {D}},         [WD_DIT_BLOCK_CROSS_Q_W] = {2, {D, D}},
    [WD_DIT_BLOCK_CROSS_Q_B] = {1, {D}},       [WD_DIT_BLOCK_CROSS_K_W] = {2, {D, D}},
    [WD_DIT_BLOCK_CROSS_V_W] = {2, {D, D}},    [WD_DIT_BLOCK_CROSS_K_B] = {1, {D}},
    [WD_DIT_BLOCK_CROSS_V_B] = {1, {D}},       [WD_DIT_BLOCK_CROSS_NORM_Q] = {1, {D}},
    [WD_DIT_BLOCK_CROSS_NORM_K] = {1, {D}},    [WD_DIT_BLOCK_CROSS_OUT_W] = {2, {D, D}},
    [WD_DIT_BLOCK_CROSS_OUT_B] = {1, {D}},     [WD_DIT_BLOCK_FFN1_W] = {2, {E, D}},
    [WD_DIT_BLOCK_FFN1_B] = {1, {E}},          [WD_DIT_BLOCK_FFN2_W] = {2, {D, E}},
    [WD_DIT_BLOCK_FFN2_B] = {1, {D}},
};

static const shape head_shapes[WD_DIT_HEAD_SLOTS] = {
    [WD_DIT_HEAD_TABLE] = {3, {ONE, TWO, D}},
    [WD_DIT_HEAD_PROJ_W] = {2, {OUT, D}},
    [WD_DIT_HEAD_PROJ_B] = {1, {OUT}},
};

/* `_keep_in_fp32_modules` of WanTransformer3DModel, matched as in diffusers with whole components
 * of the name, so norm_q does not match. */
static bool is_island(const char *name)
{
    static const char *const islands[] = {"rope",  "time_embedder", "scale_shift_table",
                                          "norm1", "norm2",         "norm3"};
    while (*name) {
        size_t n = strcspn(name, ".");
        for (size_t i = 0; i < sizeof islands / sizeof *islands; i++) {
            if (strlen(islands[i]) == n && !memcmp(islands[i], name, n)) return true;
        }
        name += n + (name[n] == '.');
    }
    return false;
}

int wd_dit_stage_slots(const wd_dit_config *config, int stage)
{
    WD_REQUIRE(stage >= 0 && stage < wd_dit_stages(config), "stage %d of %d", stage,
               wd_dit_stages(config));
    if (stage == 0) return WD_DIT_EMBED_SLOTS;
    return stage == wd_dit_stages(config) - 1 ? WD_DIT_HEAD_SLOTS : WD_DIT_BLOCK_SLOTS;
}

int64_t wd_dit_stage_first(const wd_dit_config *config, int stage)
{
    WD_REQUIRE(stage >= 0 && stage < wd_dit_stages(config), "stage %d of %d", stage,
               wd_dit_stages(config));
    (void)config;
    return stage == 0 ? 0 : WD_DIT_EMBED_SLOTS + (int64_t)(stage - 1) * WD_DIT_BLOCK_SLOTS;
}

static void fill_stage(wd_tensor_spec *spec, int stage, const wd_dit_config *c)
{
    int64_t width = wd_dit_width(c);
    const int64_t extents[EXTENTS] = {[ONE] = 1,
                                      [TWO] = 2,
                                      [SIX] = 6,
                                      [D] = width,
                                      [D6] = 6 * width,
                                      [E] = c->ffn_dim,
                                      [FREQ] = c->freq_dim,
                                      [TEXT] = c->text_dim,
                                      [IN] = c->in_channels,
                                      [PF] = c->patch[0],
                                      [PH] = c->patch[1],
                                      [PW] = c->patch[2],
                                      [OUT] = c->patch[0] * c->patch[1] * c->patch[2] *
                                              c->out_channels};
    bool embed = stage == 0, head = stage == wd_dit_stages(c) - 1;
    const shape *shapes = embed ? embed_shapes : head ? head_shapes : block_shapes;
    const char *const *names = embed ? embed_names : head ? head_names : block_names;
    for (int slot = 0; slot < wd_dit_stage_slots(c, stage); slot++, spec++) {
        if (embed || head)
            snprintf(spec->name, sizeof spec->name, "%s", names[slot]);
        else
            snprintf(spec->name, sizeof spec->name, "blocks.%d.%s", stage - 1, names[slot]);
        spec->stage = stage;
        spec->keep_f32 = is_island(spec->name);
        spec->ndim = shapes[slot].ndim;
        assert(spec->ndim > 0);
        for (int i = 0; i < spec->ndim; i++) spec->dim[i] = extents[shapes[slot].dim[i]];
        bool norm2 =
            !embed && !head && (slot == WD_DIT_BLOCK_NORM2_W || slot == WD_DIT_BLOCK_NORM2_B);
        if (norm2 && !c->cross_attn_norm) {
            spec->may_miss = true;
            spec->dim[0] = 0;
        }
    }
}

wd_status wd_dit_table_open(wd_tensor_table *out, const wd_dit_config *config, wd_err *err)
{
    int stages = wd_dit_stages(config);
    int64_t count = wd_dit_stage_first(config, stages - 1) + WD_DIT_HEAD_SLOTS;
    void *block;
    WD_TRY(wd_alloc(&block, (size_t)count, sizeof(wd_tensor_spec), "a tensor table", err));
    *out = (wd_tensor_table){.spec = block, .count = count, .stages = stages};
    for (int i = 0; i < stages; i++)
        fill_stage(out->spec + wd_dit_stage_first(config, i), i, config);
    return WD_OK;
}

void wd_dit_table_close(wd_tensor_table *table)
{
    wd_free(table->spec);
    *table = (wd_tensor_table){0};
}

wd_dtype wd_spec_dtype(const wd_tensor_spec *spec, wd_dtype dtype)
{
    return spec->keep_f32 ? WD_F32 : dtype;
}

bool wd_dit_is_matrix(const wd_tensor_spec *spec)
{
    return spec->ndim == 2 && !strncmp(spec->name, "blocks.", strlen("blocks."));
}

int64_t wd_dit_parameters(const wd_dit_config *config)
{
    wd_tensor_table table;
    int64_t sum = 0;
    if (wd_dit_table_open(&table, config, NULL) != WD_OK) return 0;
    for (int64_t i = 0; i < table.count; i++) {
        int64_t count = 1;
        for (int k = 0; k < table.spec[i].ndim; k++) count *= table.spec[i].dim[k];
        sum += count;
    }
    wd_dit_table_close(&table);
    return sum;
}
