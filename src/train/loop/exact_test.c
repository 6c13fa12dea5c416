/* Memory is planned to the byte, and one seed gives one student: random small teachers and
 * students, every strategy, every time in another window, on devices that have what is planned and
 * no more. They run, to the same bits, and each pool's peak is the plan, which is what the planner
 * worked out from sizes alone; with one byte less on any of them the pool itself refuses, whoever
 * opens the run all the same.
 *
 * A peak is the sum of the blocks that were there at once, and nothing else: pools have no holes,
 * and what lives shorter than a block lies in an arena whose size is the peak of a dry run. */
#include "sparse.h"

#include "core/memory.h"
#include "harness/random.h"
#include "train/loop/memory_plan.h"
#include "train/network/init.h"

/* ---- what is tested: simulated devices, or GPUs that the stand-in driver shows ---- */

#ifdef WD_STANDIN_GPUS
#include "dev/device_impl.h"
#include "standin/driver.h"
#include "standin/libraries.h"

/* GPUs on the host are slow to open and to compute: of each placement one refusal is tried. */
enum { SCENES = 2, STEPS = 2, ALL_REFUSALS = false };
static const char short_name[] = "cuda";
static const bool processor_differs = true; /* in its results' last bits */

/* Every second scene is in bf16, with heads for which there is cuDNN's attention. */
static bool is_fused(int scene)
{
    return scene % 2;
}

/* By cuDNN, so far. */
static int64_t plans_made(void)
{
    return wd_the_standin_asked.plans;
}

/* Accelerators whose pools hold so many bytes, and the processor. One that nothing is needed of has
 * a byte. */
static void open_devices(wd_devices *out, const size_t bytes[ACCELERATORS])
{
    wd_err err;
    if (!out->count) wd_test_ok(wd_devices_open(out, "cuda:0-2", 1, &err), &err);
    for (int d = 0; d < ACCELERATORS; d++) out->device[d]->bytes_max = bytes[d] ? bytes[d] : 1;
}

static int open_gpus(void **state)
{
    (void)state;
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.devices = ACCELERATORS;
    options.seed = 20;
    wd_standin_install_all(&options);
    return 0;
}

static int close_gpus(void **state)
{
    (void)state;
    return wd_standin_remove();
}
#else
enum { SCENES = 10, STEPS = 3, ALL_REFUSALS = true };
static const char short_name[] = "sim";
static const bool processor_differs = false;

static bool is_fused(int scene)
{
    (void)scene;
    return false;
}

static int64_t plans_made(void)
{
    return 0;
}

/* Those that are open are opened anew. */
static void open_devices(wd_devices *out, const size_t bytes[ACCELERATORS])
{
    wd_err err;
    char list[128] = "sim:";
    wd_devices_close(out);
    for (int d = 0; d < ACCELERATORS; d++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%zuB", d ? "," : "",
                 bytes[d] ? bytes[d] : 1);
    wd_test_ok(wd_devices_open(out, list, 1, &err), &err);
}

static int open_gpus(void **state)
{
    (void)state;
    return 0;
}

static int close_gpus(void **state)
{
    (void)state;
    return 0;
}
#endif

/* ---- random teachers, students, runs ---- */

static void write_text(const char *root, const char *folder, const char *name, const char *text)
{
    wd_err err;
    char path[WD_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    wd_test_ok(wd_folder_make(path, &err), &err);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    wd_test_ok(wd_file_write(path, text, strlen(text), &err), &err);
}

/* Gives a file's tensors values. */
static void fill_weights(const char *folder)
{
    wd_err err;
    char path[WD_PATH_MAX];
    wd_safetensors *set;
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", folder);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *entry = wd_safetensors_at(set, i);
        const int64_t count = wd_tensor_count(&entry->tensor);
        const size_t bytes = wd_tensor_bytes(&entry->tensor);
        float *values = malloc((size_t)count * sizeof *values);
        uint16_t *narrow = malloc((size_t)count * sizeof *narrow);
        wd_random_normal(values, count, (wd_random){.stream = WD_RANDOM_TEST, .index = draws++}, 0);
        for (int64_t k = 0; k < count; k++) {
            values[k] *= 0.2f;
            narrow[k] = entry->tensor.dtype == WD_BF16 ? wd_f32_to_bf16(values[k])
                                                       : wd_f32_to_f16(values[k]);
        }
        const void *data = entry->tensor.dtype == WD_F32 ? (void *)values : narrow;
        assert_int_equal(pwrite(fd, data, bytes, (off_t)entry->file_offset), bytes);
        free(values);
        free(narrow);
    }
    close(fd);
    wd_safetensors_close(set);
}

static void write_expert(const char *root, const char *folder, const wd_dit_config *c)
{
    static const wd_dtype dtypes[] = {WD_F32, WD_BF16, WD_F16};
    char text[1024], path[WD_PATH_MAX];
    wd_err err;
    wd_tensor_table table;
    snprintf(text, sizeof text,
             "{\"_class_name\":\"WanTransformer3DModel\",\"attention_head_dim\":%d,"
             "\"cross_attn_norm\":%s,\"eps\":1e-06,\"ffn_dim\":%d,\"freq_dim\":%d,"
             "\"in_channels\":%d,\"num_attention_heads\":%d,\"num_layers\":%d,"
             "\"out_channels\":%d,\"patch_size\":[1,2,2],\"text_dim\":%d,"
             "\"qk_norm\":\"rms_norm_across_heads\",\"rope_max_seq_len\":1024}",
             (int)c->head_dim, c->cross_attn_norm ? "true" : "false", (int)c->ffn_dim,
             (int)c->freq_dim, (int)c->in_channels, (int)c->heads, (int)c->layers,
             (int)c->out_channels, (int)c->text_dim);
    write_text(root, folder, "config.json", text);
    snprintf(path, sizeof path, "%s/%s", root, folder);
    wd_test_ok(wd_dit_table_open(&table, c, &err), &err);
    wd_test_sparse_set(path, "diffusion_pytorch_model", &table, 1, dtypes[between(0, 2)], NULL);
    wd_dit_table_close(&table);
    fill_weights(path);
}

/* A pipeline folder of its own. */
static wd_pipeline random_teacher(int number)
{
    wd_err err;
    wd_pipeline p;
    char root[WD_PATH_MAX], text[1024];
    const bool two = between(0, 1);
    const char *class = "[\"diffusers\",\"WanTransformer3DModel\"]";
    wd_dit_config c = {.in_channels = 4 * between(1, 4),
                       .heads = between(1, 3),
                       .head_dim = is_fused(number) ? 64 : 4 * between(2, 8),
                       .ffn_dim = 8 * between(4, 16),
                       .layers = between(2, 6),
                       .freq_dim = 32,
                       .text_dim = 8 * between(2, 8),
                       .patch = {1, 2, 2},
                       .rope_max_seq_len = 1024,
                       .cross_attn_norm = between(0, 3) > 0,
                       .eps = 1e-6};
    c.out_channels = c.in_channels;
    snprintf(root, sizeof root, "%s/%d", wd_test_folder(), number);
    write_expert(root, "transformer", &c);
    if (two) write_expert(root, "transformer_2", &c);
    write_text(root, "scheduler", "scheduler_config.json",
               "{\"_class_name\":\"UniPCMultistepScheduler\",\"use_flow_sigmas\":true,"
               "\"prediction_type\":\"flow_prediction\",\"flow_shift\":3.0}");
    snprintf(text, sizeof text,
             "{\"_class_name\":\"WanPipeline\",\"transformer\":%s,\"transformer_2\":%s,"
             "\"scheduler\":[\"diffusers\",\"UniPCMultistepScheduler\"],\"boundary_ratio\":%s}",
             class, two ? class : "[null,null]", two ? "0.875" : "null");
    write_text(root, ".", "model_index.json", text);
    wd_test_ok(wd_pipeline_open(&p, root, &err), &err);
    return p;
}

static void some_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    const wd_stepper_options *o = context;
    static float rows[16 * 64];
    const int64_t count = o->text_tokens * o->teacher->dit.text_dim;
    assert_true(count <= 16 * 64);
    wd_random_normal(rows, count,
                     (wd_random){.stream = WD_RANDOM_TEST, .index = (uint64_t)(prompt + 1)}, 0);
    for (int64_t i = 0; i < count; i++)
        if (dtype == WD_F32)
            ((float *)out)[i] = rows[i];
        else
            ((uint16_t *)out)[i] = wd_f32_to_bf16(rows[i]);
}

/* ---- runs ---- */

/* The student after some steps: its weights [count], to wd_free. */
typedef struct trained {
    float *weights;
    int64_t count;
} trained;

static wd_status train(trained *out, wd_stepper *m, wd_devices *d, wd_err *err)
{
    WD_TRY(wd_stepper_begin(m, err));
    for (int64_t step = 0; step < STEPS; step++) {
        WD_TRY(wd_stepper_step(m, &(wd_step){.number = step, .lr = 1e-3}, err));
        while (wd_stepper_results_pending(m) > (step + 1 < STEPS)) wd_stepper_take_result(m);
    }
    wd_params *params = wd__stepper_params(m);
    out->count = params->count;
    WD_TRY(wd_alloc((void **)&out->weights, (size_t)out->count, 4, "weights", err));
    wd_params_collect(params, WD_PARAMS_P, d->student);
    wd_queue_copy_and_wait(d->student, out->weights, wd_params_whole(params, WD_PARAMS_P),
                           (size_t)out->count * 4);
    wd_queue_wait(d->student);
    return WD_OK;
}

/* On devices that are opened for it, so that peaks are of this run. */
static wd_status run(trained *out, const wd_stepper_options *o, wd_devices *d,
                     const wd_placement *p, wd_err *err)
{
    wd_status status;
    int64_t plans;
    wd_stepper *stepper = NULL;
    wd_residency *residency = NULL;
    WD_TRY_OUT(wd_residency_open_placed(&residency, o->teacher, p, o->teacher_dtype, d->teacher,
                                        d->host, NULL, err));
    const wd_stepper_teacher where = {residency, p, d->teacher, d->home};
    WD_TRY_OUT(wd_stepper_open(&stepper, o, &where, d->student, err));
    plans = plans_made();
    WD_TRY_OUT(train(out, stepper, d, err));
    assert_int_equal(plans_made(), plans); /* all were made when it was opened */
out:
    wd_stepper_close(stepper);
    wd_residency_close(residency);
    return status;
}

/* The planner's peak of every device, from sizes alone: what else there is, and the placement. */
static void check_planner(const size_t planned[ACCELERATORS], const wd_stepper_options *o,
                          const wd_memory_plan *beside, const wd_devices *devices,
                          const wd_placement *p)
{
    wd_err err;
    const wd_teacher_size size = size_of(o);
    const wd_sweep_options sweep = wd_stepper_sweep_options(o);
    wd_cluster cluster = {.devices = devices->count, .batches = wd_sweep_batches(&sweep)};
    for (int d = 0; d < cluster.devices; d++) {
        wd_cluster_device *to = &cluster.device[d];
        to->reads_host = d == devices->processor;
        to->taken = to->reads_host ? 0 : wd_memory_plan_training_peak(beside, d);
        wd_test_ok(
            wd_sweep_need_of(&to->need, &sweep, devices->device[d], wd_device_open_dry, &err),
            &err);
    }
    wd_placed_bytes bytes;
    wd__placement_bytes(&bytes, p, &size, &cluster);
    for (int d = 0; d < ACCELERATORS; d++) assert_int_equal(wd_placed_peak(&bytes, d), planned[d]);
}

/* Opens devices that have no room. */
static void plan(size_t planned[ACCELERATORS], wd_devices *devices, const wd_stepper_options *o,
                 const wd_placement *p)
{
    wd_err err;
    wd_memory_plan whole = {0}, beside = {0};
    const size_t nothing[ACCELERATORS] = {0};
    const wd_samples_options none = {0};
    open_devices(devices, nothing);
    wd_test_ok(wd_memory_plan_stepper(&whole, o, &none, devices, p, &err), &err);
    wd_test_ok(wd_memory_plan_stepper(&beside, o, &none, devices, NULL, &err), &err);
    for (int d = 0; d < ACCELERATORS; d++) planned[d] = wd_memory_plan_peak(&whole, d);
    check_planner(planned, o, &beside, devices, p);
}

/* With one byte less on device `d`. */
static void check_refusal(size_t planned[ACCELERATORS], int d, const wd_stepper_options *o,
                          const wd_placement *p)
{
    wd_err err;
    char name[16];
    trained none = {0};
    wd_devices devices = {0};
    snprintf(name, sizeof name, "%s:%d", short_name, d);
    planned[d]--;
    open_devices(&devices, planned);
    wd_test_refused(run(&none, o, &devices, p, &err), &err, WD_OUT_OF_MEMORY, name);
    wd_devices_close(&devices);
    planned[d]++;
}

static void check_exact(trained *out, const wd_stepper_options *o, const wd_placement *p)
{
    wd_err err;
    wd_devices devices = {0};
    size_t planned[ACCELERATORS];
    plan(planned, &devices, o, p);
    open_devices(&devices, planned);
    wd_test_ok(run(out, o, &devices, p, &err), &err);
    for (int d = 0; d < ACCELERATORS; d++)
        assert_int_equal(wd_device_bytes_peak(devices.device[d]), planned[d]);
    wd_devices_close(&devices);
    const int first = (int)between(0, ACCELERATORS - 1);
    for (int i = 0, tried = 0; i < ACCELERATORS && (ALL_REFUSALS || !tried); i++) {
        const int d = (first + i) % ACCELERATORS;
        tried += planned[d] > 0;
        if (planned[d]) check_refusal(planned, d, o, p);
    }
}

static bool is_finite(const trained *t)
{
    for (int64_t i = 0; i < t->count; i++)
        if (!isfinite(t->weights[i])) return false;
    return true;
}

/* Whether it gives the bits that accelerators do. */
static bool is_comparable(const wd_placement *p)
{
    for (int e = 0; e < p->experts && processor_differs; e++)
        for (int s = 0; s < p->stages; s++)
            if (p->place[e][s].device == ACCELERATORS) return false;
    return true;
}

/* *first becomes what comes first. */
static void compare(trained *first, trained *other)
{
    if (!first->weights) {
        *first = *other;
        assert_true(is_finite(first));
        return;
    }
    assert_int_equal(first->count, other->count);
    assert_memory_equal(first->weights, other->weights, (size_t)first->count * 4);
    wd_free(other->weights);
}

static void plans_are_exact_and_students_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < asked_for("WD_TEST_SCENES", SCENES); i++) {
        const wd_pipeline teacher = random_teacher(i);
        wd_stepper_options o;
        trained first = {0}, other;
        random_run(&o, &teacher);
        if (is_fused(i)) o.teacher_dtype = o.student_dtype = WD_BF16;
        const int64_t plans = plans_made();
        o.text = some_text;
        o.text_context = &o;
        for (int k = 0; k < WD_STRATEGY_auto; k++) {
            random_window(&o);
            o.place = (wd_state_place)between(0, WD_STATE_ON_HOST);
            const wd_placement p = place((wd_strategy)k, &o);
            check_exact(&other, &o, &p);
            if (is_comparable(&p))
                compare(&first, &other);
            else
                wd_free(other.weights);
        }
        wd_free(first.weights);
        assert_int_equal(plans_made() > plans, is_fused(i));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_exact_and_students_the_same),
    };
    return cmocka_run_group_tests(tests, open_gpus, close_gpus);
}
