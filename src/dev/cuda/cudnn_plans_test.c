/* Asks NVIDIA's cuDNN, where it is installed, for plans of the attention and the convolutions of
 * the Wan models on an H200, and for some of them on other GPUs: every one must be there, repeat
 * itself bit for bit, and take no more workspace than a dry run counts. No GPU is needed: cuDNN is
 * given a driver that does nothing (standin/no_gpu.c) and the properties of a GPU. */
#include "testing.h"

#include <dlfcn.h>

#include "dev/cuda/api.h"
#include "dev/cuda/attention_graph.h"
#include "dev/cuda/attention_way.h"
#include "dev/cuda/beside_work.h"
#include "dev/cuda/conv_graph.h"

typedef struct gpu {
    const char *name;
    int capability, multiprocessors, shared_bytes;
} gpu;

static const gpu h200 = {"NVIDIA H200", 900, 132, 232448};

/* What cuDNN wants to know of a GPU; what differs among them matters, the rest is an H200's. */
static const char properties[] =
    "{\"deviceVer\": %d, \"cudaDeviceId\": 0, \"driverVer\": 13000,"
    " \"totalGlobalMem\": 150754820096, \"maxGridSize\": [2147483647, 65535, 65535],"
    " \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, \"multiProcessorCount\": %d,"
    " \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152,"
    " \"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": 1024,"
    " \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024,"
    " \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, \"isTccDriver\": 0,"
    " \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000,"
    " \"l2CacheSize\": 62914560, \"deviceName\": \"%s\"}";

static wd_cudnn_target target;
static const char *missing; /* why nothing can be planned */

/* What is planned from now on is planned for `gpu`. */
static bool plan_for(const gpu *g)
{
    char text[1024];
    wd_cudnn_descriptor device = NULL;
    const wd_cuda_cudnn *cudnn = target.cudnn;
    int length = snprintf(text, sizeof text, properties, g->capability, g->multiprocessors,
                          g->shared_bytes, g->name);
    if (target.device) cudnn->descriptor_destroy(target.device);
    target.device = NULL;
    if (cudnn->descriptor_create(WD_CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device)) return false;
    target.device = device;
    return !cudnn->set(device, WD_CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, WD_CUDNN_TYPE_CHAR,
                       length, text) &&
           !cudnn->finalize(device);
}

/* As the program finds it, with cuBLASLt and NVRTC. */
static void find_cudnn(void)
{
    static char why[sizeof(((wd_err *)0)->message)];
    const wd_cuda_api *api;
    wd_err err;
#ifdef WD_SANITIZE
    missing = "sanitizers would report what NVIDIA's libraries do";
    return;
#endif
    /* whoever asks for a library of this name from now on gets this one */
    if (!dlopen(WD_NO_GPU, RTLD_NOW | RTLD_GLOBAL)) {
        missing = "the driver that does nothing was not built";
        return;
    }
    if (wd__cuda_api_need(&api, WD_CUDA_CUDNN, &err) != WD_OK) {
        snprintf(why, sizeof why, "%s", err.message);
        missing = why;
        return;
    }
    target = (wd_cudnn_target){.cudnn = &api->cudnn};
    if (!plan_for(&h200)) missing = "this cuDNN does not plan for a GPU that is only described";
}

/* ---- attention ---- */

/* Plans a shape as attention.c and conv.c do. It must be planned as it is, in the form that is
 * preferred, for all samples at once. */
static void plan(const wd_cudnn_kind *kind, const void *key)
{
    char text[512];
    wd_err err;
    wd_cudnn_shapes shapes;
    const wd_cudnn_planned *shape;
    wd__cudnn_shapes_open(&shapes, kind, &target);
    wd_test_ok(wd__cudnn_shapes_find(&shape, &shapes, key, &err), &err);
    assert_true(wd__cudnn_shapes_describe(&shapes, 0, text, sizeof text));
    if (!shape || memcmp(shape->planned, key, kind->key_bytes)) fail_msg("%s", text);
    printf("%s\n", text);
    wd__cudnn_shapes_close(&shapes);
}

static void plan_attention(const wd_attention_key *key)
{
    plan(&wd_attention_kind, key);
}

static wd_attention_key forward_of(int64_t samples, int64_t heads, int64_t head_dim,
                                   int64_t queries, int64_t keys, wd_attention_bias bias)
{
    int64_t width = heads * head_dim;
    bool own = queries == keys && bias == WD_ATTENTION_NO_BIAS; /* q, k and v in one array */
    return (wd_attention_key){.samples = samples,
                              .heads = heads,
                              .head_dim = head_dim,
                              .q_tokens = queries,
                              .kv_tokens = keys,
                              .kv_samples = samples,
                              .q_stride = own ? 3 * width : width,
                              .kv_stride = own ? 3 * width : width,
                              .o_stride = width,
                              .bias = (int32_t)bias,
                              .statistics = true};
}

static void plan_backward(wd_attention_key key)
{
    wd_attention_backward_args args = {.samples = key.samples,
                                       .heads = key.heads,
                                       .q_tokens = key.q_tokens,
                                       .kv_tokens = key.kv_tokens};
    wd_attention_piece piece = wd__attention_piece_of(&args, WD_ATTENTION_PIECE_BYTES);
    key.samples = key.kv_samples = piece.samples;
    key.heads = piece.heads;
    key.statistics = false;
    key.backward = true;
    plan_attention(&key);
}

/* 1.3B, 5B and 14B; 512x512, 832x480 and, of the largest numbers of tokens, 1024x1024. cuDNN
 * compiles for half a second per plan, so that there each is made for one sample only. */
enum { SIZES = 3 };
static const struct {
    int64_t heads, tokens[SIZES];
} models[] = {{12, {1024, 1560, 4096}}, {24, {256, 390, 0}}, {40, {1024, 1560, 4096}}};
static const int64_t samples_of[SIZES] = {4, 4, 1};

static void attention_of_the_models(void **state)
{
    (void)state;
    if (missing) wd_test_skip(missing);
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int size = 0; size < SIZES; size++) {
            int64_t heads = models[m].heads, tokens = models[m].tokens[size], n = samples_of[size];
            if (!tokens) continue;
            wd_attention_key key = forward_of(n, heads, 128, tokens, tokens, WD_ATTENTION_NO_BIAS);
            plan_attention(&key);
            plan_backward(key);
            key = forward_of(n, heads, 128, tokens, size ? 77 : 130, WD_ATTENTION_ROW_BIAS);
            plan_attention(&key);
            plan_backward(key);
        }
}

/* The whole padding, and next to none; one k and v for all samples. */
static void attention_to_prompts(void **state)
{
    (void)state;
    if (missing) wd_test_skip(missing);
    static const int64_t keys[] = {512, 1, 2};
    for (int i = 0; i < 3; i++) {
        wd_attention_key key = forward_of(2, 12, 128, 1024, keys[i], WD_ATTENTION_ROW_BIAS);
        key.kv_samples = 1;
        plan_attention(&key);
        key.samples = 1;
        plan_backward(key);
    }
    /* the other form, which is used where a version of cuDNN refuses a row */
    wd_attention_key key = forward_of(1, 12, 128, 1560, 512, WD_ATTENTION_ROWS_BIAS);
    plan_attention(&key);
    plan_backward(key);
}

/* UMT5: 64 heads of 64, prompts of any length. */
static void attention_of_the_text_encoder(void **state)
{
    (void)state;
    if (missing) wd_test_skip(missing);
    static const int64_t tokens[] = {512, 77, 13, 1};
    for (int i = 0; i < 4; i++) {
        wd_attention_key key = forward_of(3, 64, 64, tokens[i], tokens[i], WD_ATTENTION_FULL_BIAS);
        key.statistics = false;
        plan_attention(&key);
    }
}

/* ---- convolutions ---- */

/* A square picture of one frame, through the last tap in time of `kt`; rows over columns are 4:4
 * for 512x512 and 15:26 for 832x480. */
typedef struct layer {
    int64_t side; /* at 512x512, of its input */
    int64_t ci, co, taps, stride;
} layer;

static const layer layers[] = {
    /* Wan 2.1, decoder */
    {64, 16, 384, 3, 1},
    {64, 384, 384, 3, 1},
    {128, 384, 192, 3, 1},
    {128, 192, 384, 3, 1},
    {128, 384, 384, 3, 1},
    {256, 384, 192, 3, 1},
    {256, 192, 192, 3, 1},
    {512, 192, 96, 3, 1},
    {512, 96, 96, 3, 1},
    {512, 96, 3, 3, 1},
    /* Wan 2.1, encoder */
    {512, 3, 96, 3, 1},
    {512, 96, 96, 3, 2},
    {256, 96, 192, 3, 1},
    {256, 192, 192, 3, 2},
    {128, 384, 384, 3, 2},
    {64, 384, 32, 3, 1},
    /* Wan 2.2, decoder and encoder */
    {32, 48, 1024, 3, 1},
    {32, 1024, 1024, 3, 1},
    {64, 1024, 1024, 3, 1},
    {128, 1024, 512, 3, 1},
    {256, 512, 512, 3, 1},
    {256, 512, 256, 3, 1},
    {256, 256, 12, 3, 1},
    {256, 12, 160, 3, 1},
    {256, 160, 160, 3, 2},
    {128, 160, 320, 3, 1},
    {64, 640, 640, 3, 2},
    {32, 640, 96, 3, 1},
};

static void plan_conv(const wd_conv_args *args)
{
    const wd_conv_key key = wd__conv_key_of(args);
    assert_true(wd__conv_can(args));
    plan(&wd_conv_kind, &key);
}

static wd_conv_args conv_of(const layer *l, bool wide, wd_dtype type)
{
    int64_t high = wide ? l->side * 15 / 16 : l->side, broad = wide ? l->side * 26 / 16 : l->side;
    wd_conv_args a = {.bias = (const void *)64,
                      .type = type,
                      .w_type = type,
                      .samples = 1,
                      .in = {1, high, broad},
                      .ci = l->ci,
                      .co = l->co,
                      .kernel = {l->stride == 1 ? 3 : 1, l->taps, l->taps},
                      .stride = {1, l->stride, l->stride},
                      .pad_before = {0, l->stride == 1, l->stride == 1},
                      .pad_after = {0, 1, 1},
                      .tap0 = l->stride == 1 ? 2 : 0,
                      .tap1 = l->stride == 1 ? 3 : 1};
    for (int d = 0; d < 3; d++) {
        int64_t taps = d ? a.kernel[d] : 1;
        a.out[d] = (a.in[d] + a.pad_before[d] + a.pad_after[d] - taps) / a.stride[d] + 1;
    }
    return a;
}

static void convolutions_of_the_vae(void **state)
{
    (void)state;
    if (missing) wd_test_skip(missing);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int wide = 0; wide < 2; wide++) {
            wd_conv_args args = conv_of(&layers[i], wide, WD_F32);
            plan_conv(&args);
        }
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i += 9) { /* in bf16, with its bias */
        wd_conv_args args = conv_of(&layers[i], false, WD_BF16);
        plan_conv(&args);
    }
}

/* What is done while the memory of libraries is measured. */
static void work_of_the_measurement(void **state)
{
    (void)state;
    if (missing) wd_test_skip(missing);
    for (int64_t head_dim = 64; head_dim <= 128; head_dim *= 2) {
        wd_attention_key key = forward_of(1, WD_BESIDE_HEADS, head_dim, WD_BESIDE_TOKENS,
                                          WD_BESIDE_TOKENS, WD_ATTENTION_NO_BIAS);
        key.q_stride = key.kv_stride = WD_BESIDE_HEADS * head_dim;
        plan_attention(&key);
        plan_backward(key);
    }
    const layer picture = {WD_BESIDE_PICTURE, WD_BESIDE_CHANNELS, WD_BESIDE_CHANNELS,
                           WD_BESIDE_TAPS, 1};
    wd_conv_args args = conv_of(&picture, false, WD_BF16);
    plan_conv(&args);
}

/* ---- other GPUs ---- */

/* Of each generation that the kernels are compiled for: one layer's attention both ways, and a
 * convolution. */
static void other_gpus(void **state)
{
    (void)state;
    if (missing) wd_test_skip(missing);
    static const gpu gpus[] = {{"NVIDIA A100", 800, 108, 166912},
                               {"NVIDIA RTX 3090", 860, 82, 101376},
                               {"NVIDIA RTX 4090", 890, 128, 101376},
                               {"NVIDIA B200", 1000, 148, 232448},
                               {"NVIDIA RTX 5090", 1200, 170, 101376}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        assert_true(plan_for(&gpus[i]));
        wd_attention_key key = forward_of(1, 12, 128, 1024, 1024, WD_ATTENTION_NO_BIAS);
        plan_attention(&key);
        plan_backward(key);
        plan_backward(forward_of(1, 12, 128, 1024, 77, WD_ATTENTION_ROW_BIAS));
        wd_conv_args args = conv_of(&layers[1], false, WD_F32);
        plan_conv(&args);
    }
    assert_true(plan_for(&h200));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_the_models),       cmocka_unit_test(attention_to_prompts),
        cmocka_unit_test(attention_of_the_text_encoder), cmocka_unit_test(convolutions_of_the_vae),
        cmocka_unit_test(work_of_the_measurement),       cmocka_unit_test(other_gpus),
    };
    find_cudnn();
    return cmocka_run_group_tests_name("cudnn_plans", tests, NULL, NULL);
}
