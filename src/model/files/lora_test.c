/* Tests of LoRAs: names in all spellings, merged weights against the formula, damaged files. */
#include "loras.h"
#include "test_preset.h"
#include "tiny_teacher.h"

#include <math.h>

#include "dev/codec/values.h"
#include "model/files/lora_name.h"
#include "model/tables/dit_table.h"

/* Sums of a few products of numbers below 1, in fp32 and in another order than the reference's. */
static const double tolerance = 1e-6;

static const char *at(const char *name)
{
    static char path[16][WD_PATH_MAX];
    static int next;
    wd_err err;
    char *out = path[next++ % 16];
    wd_test_ok(wd_path_join(out, wd_test_folder(), name, &err), &err);
    return out;
}

/* ---- names ---- */

/* Every weight goes by its name in every style, and no name means two modules. */
static void every_module_has_its_names(void **state)
{
    (void)state;
    static const char *const presets[] = {"wan2.1-1.3b", "wan2.2-5b", "wan2.2-a14b"};
    wd_err err;
    wd_tensor_table table;
    wd_lora_modules modules;
    for (int k = 0; k < 3; k++) {
        const wd_pipeline p = wd_test_preset(presets[k]);
        wd_test_ok(wd_dit_table_open(&table, &p.dit, &err), &err);
        wd_test_ok(wd__lora_modules_open(&modules, &table, &err), &err);
        for (int64_t i = 1; i < modules.count; i++)
            assert_string_not_equal(modules.module[i].name, modules.module[i - 1].name);
        for (int64_t i = 0; i < table.count; i++) {
            char module[WD_TENSOR_NAME_MAX], key[192];
            const char *name = table.spec[i].name;
            const size_t length = strlen(name);
            const bool weight = length > 7 && !strcmp(name + length - 7, ".weight");
            if (length > 5 && !strcmp(name + length - 5, ".bias")) continue;
            snprintf(module, sizeof module, "%.*s", (int)(weight ? length - 7 : length), name);
            for (int s = 0; s < WD_TEST_LORA_STYLES; s++) {
                const wd_lora_module *found;
                wd_lora_part part;
                wd_test_lora_name(key, module, 'd', (wd_test_lora_style)s);
                wd_test_ok(wd__lora_resolve(&found, &part, &modules, key, "x", &err), &err);
                assert_int_equal(part, WD_LORA_DIFF);
                assert_int_equal(found->weight, i);
                if (found->bias >= 0)
                    assert_memory_equal(table.spec[found->bias].name, module, strlen(module));
            }
        }
        wd__lora_modules_close(&modules);
        wd_dit_table_close(&table);
    }
}

/* Other trainers' names of what the styles above have. */
static void names_of_other_trainers(void **state)
{
    (void)state;
    static const struct {
        const char *key, *tensor;
        wd_lora_part part;
    } cases[] = {
        {"lora_unet__blocks_0_cross_attn_k.lora_down.weight", "blocks.0.attn2.to_k.weight",
         WD_LORA_DOWN},
        {"pipe.dit.blocks.1.ffn.0.lora_B.default.weight", "blocks.1.ffn.net.0.proj.weight",
         WD_LORA_UP},
        {"module.diffusion_model.blocks.0.self_attn.q.lora_A.weight", "blocks.0.attn1.to_q.weight",
         WD_LORA_DOWN},
        {"transformer._orig_mod.blocks.0._orig_mod.attn1.to_q.lora_B.weight",
         "blocks.0.attn1.to_q.weight", WD_LORA_UP},
        {"diffusion_model.blocks.1.diff_m", "blocks.1.scale_shift_table", WD_LORA_DIFF},
        {"diffusion_model.head.diff_m", "scale_shift_table", WD_LORA_DIFF},
        {"lora_unet_blocks_0.diff_m", "blocks.0.scale_shift_table", WD_LORA_DIFF},
    };
    wd_err err;
    wd_tensor_table table;
    wd_lora_modules modules;
    const wd_lora_module *found;
    wd_lora_part part;
    wd_test_ok(wd_dit_table_open(&table, &teacher.dit, &err), &err);
    wd_test_ok(wd__lora_modules_open(&modules, &table, &err), &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_test_ok(wd__lora_resolve(&found, &part, &modules, cases[i].key, "x", &err), &err);
        assert_string_equal(table.spec[found->weight].name, cases[i].tensor);
        assert_int_equal(part, cases[i].part);
    }
    wd_test_refused(wd__lora_resolve(&found, &part, &modules, "blocks.0.ffn.diff_m", "x", &err),
                    &err, WD_MISMATCH, "no module \"blocks.0.ffn\"");
    wd__lora_modules_close(&modules);
    wd_dit_table_close(&table);
}

/* ---- merging ---- */

/* The modules that the test changes, and the rank of each change; 0: a diff. */
static const struct {
    const char *module;
    int64_t rank;
} changed[] = {
    {"blocks.0.attn1.to_q", 3},        {"blocks.1.ffn.net.0.proj", 2},
    {"blocks.1.attn2.to_out.0", 3},    {"patch_embedding", 2},
    {"blocks.0.scale_shift_table", 0}, {"condition_embedder.time_embedder.linear_1", 2},
};

enum { CHANGED = sizeof changed / sizeof *changed };

static const wd_safetensors_entry *weight_of(const wd_safetensors *set, const char *module)
{
    char name[WD_TENSOR_NAME_MAX];
    const wd_safetensors_entry *e = wd_safetensors_find(set, module);
    snprintf(name, sizeof name, "%s.weight", module);
    return e ? e : wd_safetensors_find(set, name);
}

/* Fills in a tensor whose dimensions are those of `like` from `first` on. */
static wd_test_lora tensor(const char *module, char part, wd_test_lora_style style, int ndim,
                           const int64_t *dim)
{
    wd_test_lora t = {.ndim = ndim, .value = 1.5f};
    wd_test_lora_name(t.name, module, part, style);
    memcpy(t.dim, dim, (size_t)ndim * sizeof *dim);
    return t;
}

/* A LoRA of all `changed` modules. The convolution's factors are as kohya writes them; the first
 * product has an alpha of 1.5, and the bias of the first module changes. */
static int64_t describe(wd_test_lora out[WD_TEST_LORA_MAX], const wd_safetensors *set,
                        wd_test_lora_style style)
{
    int64_t n = 0;
    for (int i = 0; i < CHANGED; i++) {
        const char *module = changed[i].module;
        const wd_tensor *w = &weight_of(set, module)->tensor;
        const int64_t r = changed[i].rank;
        if (!r) {
            out[n++] = tensor(module, 'd', style, w->ndim, w->dim);
            continue;
        }
        int64_t down[WD_DIMS_MAX], up[WD_DIMS_MAX] = {w->dim[0], r, 1, 1, 1, 1};
        memcpy(down, w->dim, sizeof down);
        down[0] = r;
        out[n++] = tensor(module, 'A', style, w->ndim, down);
        out[n++] = tensor(module, 'B', style, w->ndim, up);
    }
    const char *first = changed[0].module;
    out[n++] = tensor(first, 'a', style, 0, (int64_t[]){0});
    out[n++] = tensor(first, 'b', style, 1, weight_of(set, first)->tensor.dim);
    return n;
}

/* The reference: adds strength alpha / rank B A, or strength diff, to all values of a tensor. */
static void add_reference(double *value, const wd_tensor *w, const char *module, bool bias,
                          int64_t rank, const wd_safetensors *lora, double strength)
{
    char name[192];
    double scale = strength;
    const int64_t count = wd_tensor_count(w), columns = count / w->dim[0];
    if (bias || !rank) {
        wd_test_lora_name(name, module, bias ? 'b' : 'd', WD_TEST_LORA_DIFFUSERS);
        const wd_safetensors_entry *e = wd_safetensors_find(lora, name);
        for (int64_t i = 0; e && i < count; i++) {
            float f;
            wd_tensor_values(&f, &e->tensor, i, 1);
            value[i] += strength * (double)f;
        }
        return;
    }
    wd_test_lora_name(name, module, 'A', WD_TEST_LORA_DIFFUSERS);
    const wd_safetensors_entry *a = wd_safetensors_find(lora, name);
    wd_test_lora_name(name, module, 'B', WD_TEST_LORA_DIFFUSERS);
    const wd_safetensors_entry *b = wd_safetensors_find(lora, name);
    wd_test_lora_name(name, module, 'a', WD_TEST_LORA_DIFFUSERS);
    if (wd_safetensors_find(lora, name)) scale *= 1.5 / (double)rank;
    for (int64_t i = 0; i < count; i++)
        for (int64_t r = 0; r < rank; r++) {
            float x, y;
            wd_tensor_values(&x, &b->tensor, i / columns * rank + r, 1);
            wd_tensor_values(&y, &a->tensor, r * columns + i % columns, 1);
            value[i] += scale * (double)x * (double)y;
        }
}

/* Compares a merged tensor with the reference: of two files, the second of strength -0.25. */
static void check_tensor(const wd_tensor *merged, const wd_tensor *w, const char *module, bool bias,
                         int64_t rank, wd_safetensors *const lora[2])
{
    const int64_t count = wd_tensor_count(w);
    double *expected = calloc((size_t)count, sizeof *expected);
    float *found = calloc((size_t)count, sizeof *found);
    wd_tensor_values(found, w, 0, count);
    for (int64_t i = 0; i < count; i++) expected[i] = (double)found[i];
    add_reference(expected, w, module, bias, rank, lora[0], 0.75);
    add_reference(expected, w, module, bias, rank, lora[1], -0.25);
    wd_tensor_values(found, merged, 0, count);
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs((double)found[i] - expected[i]);
        if (!(error <= tolerance * fmax(1, fabs(expected[i]))))
            fail_msg("%s [%lld]: %.9g, expected %.9g", module, (long long)i, (double)found[i],
                     expected[i]);
    }
    free(expected);
    free(found);
}

static void open_set(wd_safetensors **out, const wd_pipeline *p)
{
    wd_err err;
    wd_test_ok(wd_pipeline_open_weights(out, p, WD_COMPONENT_TRANSFORMER, &err), &err);
}

/* Opens the pipeline with LoRAs that are merged in `dtype` in the folder `name`. */
static wd_pipeline with_loras(const char *loras, const char *name, wd_dtype dtype)
{
    wd_err err;
    wd_pipeline p;
    const wd_pipeline_parts parts = {.lora = {loras}};
    wd_test_ok(wd_pipeline_open_parts(&p, teacher.path, &parts, &err), &err);
    p.overlay = (wd_overlay){.folder = at(name), .dtype = dtype};
    wd_test_ok(wd_pipeline_make_overlay(&p, &err), &err);
    return p;
}

static bool is_changed(const char *name)
{
    for (int i = 0; i < CHANGED; i++) {
        const size_t length = strlen(changed[i].module);
        if (!strncmp(name, changed[i].module, length) && strcmp(name + length, ".bias"))
            return true;
    }
    return !strcmp(name, "blocks.0.attn1.to_q.bias");
}

static void check_merged(const wd_safetensors *merged, const wd_safetensors *base,
                         wd_safetensors *const lora[2])
{
    for (int i = 0; i < CHANGED; i++)
        check_tensor(&weight_of(merged, changed[i].module)->tensor,
                     &weight_of(base, changed[i].module)->tensor, changed[i].module, false,
                     changed[i].rank, lora);
    static const char bias[] = "blocks.0.attn1.to_q.bias";
    check_tensor(&wd_safetensors_find(merged, bias)->tensor,
                 &wd_safetensors_find(base, bias)->tensor, changed[0].module, true, 0, lora);
    for (int64_t i = 0; i < wd_safetensors_count(base); i++) {
        const wd_safetensors_entry *a = wd_safetensors_at(base, i),
                                   *b = wd_safetensors_at(merged, i);
        assert_string_equal(a->name, b->name);
        if (!is_changed(a->name)) {
            assert_string_equal(a->file, b->file);
            assert_memory_equal(a->tensor.data, b->tensor.data, wd_tensor_bytes(&a->tensor));
        }
    }
}

/* In every style and dtype of the file, two files after one another are what the formula says, and
 * a file in another style gives the same bits. */
static void merged_weights_follow_the_formula(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *base, *lora[2], *merged, *first = NULL;
    wd_test_lora tensors[WD_TEST_LORA_MAX];
    char list[3 * WD_PATH_MAX], name[64], path[2][WD_PATH_MAX];
    open_set(&base, &teacher);
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < WD_TEST_LORA_STYLES; s++) {
            const wd_dtype dtypes[] = {WD_F32, WD_BF16, WD_F16};
            for (int k = 0; k < 2; k++) {
                const int64_t n = describe(tensors, base, (wd_test_lora_style)s);
                snprintf(name, sizeof name, "style%d-%d-%d.safetensors", d, s, k);
                snprintf(path[k], sizeof path[k], "%s", at(name));
                wd_test_write_lora(path[k], tensors, n - (k ? 2 : 0), dtypes[d],
                                   (uint32_t)(17 * d + k));
            }
            snprintf(list, sizeof list, "%s:0.75,%s:-0.25", path[0], path[1]);
            snprintf(name, sizeof name, "merged%d-%d", d, s);
            const wd_pipeline p = with_loras(list, name, WD_F32);
            open_set(&merged, &p);
            if (s == 0) {
                for (int k = 0; k < 2; k++)
                    wd_test_ok(wd_safetensors_open(&lora[k], path[k], &err), &err);
                check_merged(merged, base, lora);
                first = merged;
                for (int k = 0; k < 2; k++) wd_safetensors_close(lora[k]);
                continue;
            }
            for (int64_t i = 0; i < wd_safetensors_count(base); i++) {
                const wd_tensor *a = &wd_safetensors_at(first, i)->tensor;
                assert_memory_equal(a->data, wd_safetensors_at(merged, i)->tensor.data,
                                    wd_tensor_bytes(a));
            }
            wd_safetensors_close(merged);
            if (s == WD_TEST_LORA_STYLES - 1) wd_safetensors_close(first);
        }
    wd_safetensors_close(base);
}

/* Merged weights are rounded once, and tensors that stay fp32 are not. */
static void merged_weights_are_rounded_once(void **state)
{
    (void)state;
    static const char fp32[] = "blocks.0.scale_shift_table", other[] = "blocks.0.attn1.to_q.weight";
    const wd_dtype dtypes[] = {WD_BF16, WD_F16};
    wd_safetensors *wide, *base;
    wd_test_lora tensors[WD_TEST_LORA_MAX];
    char path[WD_PATH_MAX];
    snprintf(path, sizeof path, "%s", at("round.safetensors"));
    open_set(&base, &teacher);
    wd_test_write_lora(path, tensors, describe(tensors, base, WD_TEST_LORA_KOHYA), WD_F32, 5);
    wd_safetensors_close(base);
    const wd_pipeline p = with_loras(path, "wide", WD_F32);
    open_set(&wide, &p);
    for (int k = 0; k < 2; k++) {
        wd_safetensors *set;
        const wd_pipeline q = with_loras(path, k ? "half" : "brain", dtypes[k]);
        open_set(&set, &q);
        const wd_tensor *a = &wd_safetensors_find(wide, other)->tensor,
                        *b = &wd_safetensors_find(set, other)->tensor;
        assert_int_equal(b->dtype, dtypes[k]);
        for (int64_t i = 0; i < wd_tensor_count(a); i++) {
            float f;
            uint16_t half;
            wd_tensor_values(&f, a, i, 1);
            memcpy(&half, (const char *)b->data + 2 * i, 2);
            assert_int_equal(half, k ? wd_f32_to_f16(f) : wd_f32_to_bf16(f));
        }
        assert_int_equal(wd_safetensors_find(set, fp32)->tensor.dtype, WD_F32);
        wd_safetensors_close(set);
    }
    wd_safetensors_close(wide);
}

/* Before they are merged, weights have dtypes but no data; the key is of files and strengths. */
static void plans_need_no_data(void **state)
{
    (void)state;
    static const char name[] = "blocks.0.attn1.to_q.weight";
    wd_err err;
    wd_pipeline p;
    wd_safetensors *set;
    wd_test_lora tensors[WD_TEST_LORA_MAX];
    char path[WD_PATH_MAX], strong[WD_PATH_MAX + 8], keys[3][WD_LORA_KEY_MAX];
    const wd_component c = WD_COMPONENT_TRANSFORMER;
    snprintf(path, sizeof path, "%s", at("plan.safetensors"));
    snprintf(strong, sizeof strong, "%s:2", path);
    open_set(&set, &teacher);
    wd_test_write_lora(path, tensors, describe(tensors, set, WD_TEST_LORA_PEFT), WD_BF16, 5);
    wd_safetensors_close(set);
    for (int i = 0; i < 3; i++) {
        const wd_pipeline_parts parts = {.lora = {i == 2 ? strong : i ? path : NULL}};
        wd_test_ok(wd_pipeline_open_parts(&p, teacher.path, &parts, &err), &err);
        wd_test_ok(wd_pipeline_weights_key(keys[i], &p, c, "", &err), &err);
        for (int k = 0; k < i; k++) assert_string_not_equal(keys[k], keys[i]);
    }
    p.overlay = (wd_overlay){.folder = at("planned"), .dtype = WD_BF16};
    for (int i = 0; i < 2; i++) {
        open_set(&set, &p);
        const wd_tensor *t = &wd_safetensors_find(set, name)->tensor;
        assert_int_equal(t->dtype, WD_BF16);
        assert_true((t->data != NULL) == i);
        wd_safetensors_close(set);
        wd_test_ok(wd_pipeline_make_overlay(&p, &err), &err);
    }
    const wd_pipeline_parts none = {.lora = {NULL, path}};
    wd_test_refused(
        wd_pipeline_open_parts(&p, WD_SOURCE_DIR "/tests/fixtures/dit-head128", &none, &err), &err,
        WD_INVALID_ARGUMENT, "--teacher_lora_2: ");
}

/* ---- what is refused ---- */

#define Q "blocks.0.self_attn.q"
#define A(module, rank, columns)                                                                   \
    {                                                                                              \
        "diffusion_model." module ".lora_down.weight", 2, {rank, columns}, 0                       \
    }
#define B(module, rows, rank)                                                                      \
    {                                                                                              \
        "diffusion_model." module ".lora_up.weight", 2, {rows, rank}, 0                            \
    }

static void damaged_files_are_refused(void **state)
{
    (void)state;
    enum { D = 160 }; /* of wan-tiny */
    static const struct {
        wd_test_lora tensor[4];
        wd_status status;
        const char *named;
    } cases[] = {
        {{A(Q, 2, D)}, WD_NOT_FOUND, "q.lora_down.weight\" has no counterpart"},
        {{B(Q, D, 2)}, WD_NOT_FOUND, "q.lora_up.weight\" has no counterpart"},
        {{{"lora_unet_blocks_0_self_attn_q.alpha", 0, {0}, 1}}, WD_NOT_FOUND, "has no counterpart"},
        {{A(Q, 2, D + 1), B(Q, D, 2)}, WD_MISMATCH, "expected shape [2, 160], found [2, 161]"},
        {{A(Q, 2, D), B(Q, D - 1, 2)}, WD_MISMATCH, "expected shape [160, 2], found [159, 2]"},
        {{A(Q, 2, D), B(Q, D, 3)}, WD_MISMATCH, "expected shape [160, 2], found [160, 3]"},
        {{A(Q, 0, D), B(Q, D, 0)}, WD_MISMATCH, "found [0, 160]"},
        {{A(Q, 1025, D), B(Q, D, 1025)}, WD_MISMATCH, "rank 1025, expected at most 1024"},
        {{{"diffusion_model." Q ".lora_down.weight", 1, {D}, 0}, B(Q, D, 2)}, WD_MISMATCH, "[160]"},
        {{A(Q, 2, D), B(Q, D, 2), {"diffusion_model." Q ".alpha", 0, {0}, NAN}},
         WD_BAD_FORMAT,
         "expected a finite number, found"},
        {{A(Q, 2, D), B(Q, D, 2), {"diffusion_model." Q ".alpha", 1, {2}, 1}},
         WD_MISMATCH,
         "expected shape [], found [2]"},
        {{A(Q, 2, D), B(Q, D, 2), {"transformer.blocks.0.attn1.to_q.lora_A.weight", 2, {2, D}, 0}},
         WD_BAD_FORMAT,
         "are the same part of module"},
        {{{"diffusion_model." Q ".diff", 2, {D, 2}, 0}}, WD_MISMATCH, "found [160, 2]"},
        {{{"diffusion_model.blocks.0.self_attn.norm_q.diff_b", 1, {D}, 0}}, WD_MISMATCH, "no bias"},
        {{{"diffusion_model." Q ".weight", 2, {D, D}, 0}}, WD_UNSUPPORTED, "no part of a LoRA"},
        {{{"diffusion_model." Q ".dora_scale", 1, {D}, 0}}, WD_UNSUPPORTED, "a DoRA"},
        {{{"lycoris_blocks_0_ffn_0.hada_w1_a", 2, {D, 2}, 0}}, WD_UNSUPPORTED, "a LoHa"},
        {{{"lycoris_blocks_0_ffn_0.lokr_w1", 2, {D, 2}, 0}}, WD_UNSUPPORTED, "a LoKr"},
        {{A("blocks.0.cross_attn.k_img", 2, D)}, WD_UNSUPPORTED, "an image-to-video model"},
        {{{"lora_unet_blocks_0_cross_attn_k_img.lora_down.weight", 2, {2, D}, 0}},
         WD_UNSUPPORTED,
         "an image-to-video model"},
        {{A("vace_blocks.0.self_attn.q", 2, D)}, WD_UNSUPPORTED, "a VACE model"},
        {{{"lora_te_text_model_q.lora_down.weight", 2, {2, D}, 0}},
         WD_UNSUPPORTED,
         "a text encoder"},
        {{A("blocks.99.self_attn.q", 2, D), B("blocks.99.self_attn.q", D, 2)},
         WD_MISMATCH,
         "no module \"blocks.99.self_attn.q\""},
        {{{".lora_A.weight", 2, {2, D}, 0}}, WD_UNSUPPORTED, "no part of a LoRA"},
        {.status = WD_UNSUPPORTED, .named = "has no tensors"},
    };
    wd_err err;
    wd_pipeline p;
    wd_safetensors *set;
    const char *path = at("damaged.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n = 0;
        while (n < 4 && *cases[i].tensor[n].name) n++;
        wd_test_write_lora(path, cases[i].tensor, n, WD_F32, 1);
        const wd_pipeline_parts parts = {.lora = {path}};
        wd_test_ok(wd_pipeline_open_parts(&p, teacher.path, &parts, &err), &err);
        const wd_status status = wd_pipeline_open_weights(&set, &p, WD_COMPONENT_TRANSFORMER, &err);
        wd_test_refused(status, &err, cases[i].status, cases[i].named);
        assert_non_null(strstr(err.message, "damaged.safetensors"));
    }
}

/* The option's text, and dtypes and values that cannot be merged. */
static void bad_lists_are_refused(void **state)
{
    (void)state;
    static const wd_test_lora good[] = {A(Q, 2, 160), B(Q, 160, 2)};
    wd_err err;
    wd_pipeline p;
    wd_safetensors *set;
    char text[WD_PATH_MAX + 32], many[64] = "x";
    wd_test_write_lora(at("good.safetensors"), good, 2, WD_F32, 1);
    for (int i = 0; i < WD_LORAS_MAX; i++) strcat(many, ",x");
    const struct {
        const char *text;
        wd_status status;
        const char *named;
    } cases[] = {
        {"", WD_INVALID_ARGUMENT, "an empty path"},
        {"a,,b", WD_INVALID_ARGUMENT, "an empty path"},
        {":0.5", WD_INVALID_ARGUMENT, "an empty path"},
        {"a:nan", WD_INVALID_ARGUMENT, "no finite strength"},
        {"a:1e60", WD_INVALID_ARGUMENT, "no finite strength"},
        {many, WD_INVALID_ARGUMENT, "found more"},
        {"no-such-file:0.5", WD_NOT_FOUND, "no-such-file"},
        {"no-such-file:half", WD_NOT_FOUND, "no-such-file:half"},
        {"no-such-file:0,8", WD_INVALID_ARGUMENT, "a number with a comma"},
        {"a:1,no-such-file:-1,25,b", WD_INVALID_ARGUMENT, "a number with a comma"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wd_pipeline_parts parts = {.lora = {cases[i].text}};
        wd_test_ok(wd_pipeline_open_parts(&p, teacher.path, &parts, &err), &err);
        wd_test_refused(wd_pipeline_open_weights(&set, &p, WD_COMPONENT_TRANSFORMER, &err), &err,
                        cases[i].status, cases[i].named);
    }
    snprintf(text, sizeof text, "%s:3e38", at("good.safetensors"));
    const wd_pipeline_parts parts = {.lora = {text}};
    wd_test_ok(wd_pipeline_open_parts(&p, teacher.path, &parts, &err), &err);
    p.overlay = (wd_overlay){.folder = at("too-large"), .dtype = WD_F16};
    wd_test_refused(wd_pipeline_make_overlay(&p, &err), &err, WD_UNSUPPORTED,
                    "which float16 cannot hold");
}

/* The bias of the last patch, all of whose values a LoRA changes by `strength`; what merging says.
 */
static wd_status merge_bias(float strength, const char *folder, wd_err *err)
{
    static const wd_test_lora one[] = {{"diffusion_model.head.head.diff_b", 1, {1}, 1}};
    char text[WD_PATH_MAX + 32], path[WD_PATH_MAX];
    wd_pipeline p;
    wd_safetensors *set;
    wd_test_lora changed_bias = one[0];
    open_set(&set, &teacher);
    changed_bias.dim[0] = wd_safetensors_find(set, "proj_out.bias")->tensor.dim[0];
    wd_safetensors_close(set);
    snprintf(path, sizeof path, "%s", at("bias.safetensors"));
    wd_test_write_ones(path, &changed_bias);
    snprintf(text, sizeof text, "%s:%.9g", path, (double)strength);
    const wd_pipeline_parts parts = {.lora = {text}};
    wd_test_ok(wd_pipeline_open_parts(&p, teacher.path, &parts, err), err);
    p.overlay = (wd_overlay){.folder = at(folder), .dtype = WD_BF16};
    return wd_pipeline_make_overlay(&p, err);
}

/* A bfloat16 holds what is rounded to its largest value, and nothing from halfway to the next power
 * of two on. */
static void bfloat16_holds_no_more_than_its_largest_value(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(merge_bias(0x1.fefffep127f, "largest", &err), &err);
    wd_test_refused(merge_bias(0x1.ffp127f, "infinite", &err), &err, WD_UNSUPPORTED,
                    "which bfloat16 cannot hold");
}

/* A file in the cache that is not what its name says is refused. */
static void another_file_in_the_cache(void **state)
{
    (void)state;
    static const wd_test_lora good[] = {A(Q, 2, 160), B(Q, 160, 2)};
    char command[2 * WD_PATH_MAX], path[WD_PATH_MAX];
    wd_err err;
    wd_safetensors *set;
    snprintf(path, sizeof path, "%s", at("good.safetensors"));
    wd_test_write_lora(path, good, 2, WD_F32, 1);
    const wd_pipeline p = with_loras(path, "replaced", WD_F32);
    snprintf(command, sizeof command, "cp %s %s/merged-*", path, at("replaced"));
    assert_int_equal(system(command), 0);
    wd_test_refused(wd_pipeline_open_weights(&set, &p, WD_COMPONENT_TRANSFORMER, &err), &err,
                    WD_BAD_FORMAT, "remove the file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_module_has_its_names),
        cmocka_unit_test(names_of_other_trainers),
        cmocka_unit_test(merged_weights_follow_the_formula),
        cmocka_unit_test(merged_weights_are_rounded_once),
        cmocka_unit_test(plans_need_no_data),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(bfloat16_holds_no_more_than_its_largest_value),
        cmocka_unit_test(another_file_in_the_cache),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
