/* Fuzz target: any bytes as a run's folder of checkpoints. The list of hashes is made to agree with
 * the files, so that what they say is read, too, unless the input brings a list of its own. */
#include "fuzzing.h"

#include "train/output/checkpoint.h"
#include "train/output/checkpoint_list.h"

#define STEP "checkpoints/step-00000002/"

static void write_sums(void)
{
    static const char *const names[] = {"state.safetensors", "state.json"};
    char text[256], hash[33], path[128];
    int used = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, STEP "%s", names[i]);
        if (wd_file_hash(hash, wd_fuzz_path(path), NULL) != WD_OK) return;
        used += sprintf(text + used, "%s  %s\n", hash, names[i]);
    }
    wd_fuzz_file(STEP "checksums.xxh128", (const uint8_t *)text, (size_t)used);
}

/* Two networks of one block, which checkpoints are loaded into: a student, and weights in BF16 as
 * passes take them. */
static struct {
    wd_device *device;
    wd_queue *queue;
    wd_params student, weights;
} into;

static void open_networks(void)
{
    static const wd_params_names names = WD_PARAMS_NAMES("snapshot", "snapshot.");
    const wd_dit_config config = {.in_channels = 1,
                                  .out_channels = 1,
                                  .heads = 1,
                                  .head_dim = 2,
                                  .ffn_dim = 2,
                                  .layers = 1,
                                  .freq_dim = 2,
                                  .text_dim = 1,
                                  .patch = {1, 1, 1},
                                  .rope_max_seq_len = 8,
                                  .cross_attn_norm = true,
                                  .eps = 1e-6};
    const wd_params_options options = {.names = &names,
                                       .config = &config,
                                       .dtype = WD_BF16,
                                       .kinds = WD_PARAMS_AS_COMPUTED,
                                       .ranks = 1};
    if (wd_device_open_cpu(&into.device, 1, NULL) ||
        wd_queue_open(&into.queue, into.device, NULL) ||
        wd_params_open(&into.student, &config, WD_F32, WD_PARAMS_TRAINED, into.device, NULL) ||
        wd_params_open_with(&into.weights, &options, into.device, NULL))
        abort();
}

static void load(const wd_checkpoint *checkpoint)
{
    wd_params *const networks[] = {&into.weights, &into.student};
    wd_err err;
    if (!into.device) open_networks();
    for (int i = 0; i < 2; i++) {
        const wd_checkpoint_tensors tensors = {.params = networks + i, .networks = 1};
        wd_checkpoint_load(checkpoint, &tensors, into.queue, &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {STEP "state.json", STEP "state.safetensors",
                                        STEP "checksums.xxh128",
                                        "checkpoints/step-00000001/state.json"};
    wd_checkpoint checkpoint = {0};
    wd_err err;
    json_t *run;
    char hash[33];
    wd_fuzz_files(names, 4, data, bytes);
    if (!wd_path_exists(wd_fuzz_path(names[2]))) write_sums();
    const char *step = wd_fuzz_path("checkpoints/step-00000002");
    if (wd_checkpoint_read_run(&run, NULL, step, &err) == WD_OK) json_decref(run);
    wd_checkpoint_hash(hash, step, &err);
    if (wd_checkpoint_open_latest(&checkpoint, wd_fuzz_path("checkpoints"), &err) == WD_OK) {
        load(&checkpoint);
        wd_checkpoint_close(&checkpoint);
    }
    return 0;
}
