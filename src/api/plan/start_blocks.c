/* Blocks of the start: see api/plan/start_blocks.h. */
#include "api/plan/start_blocks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "api/plan/train_cluster.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/stop.h"
#include "train/network/init.h"

enum { KEY_TEXT = 1024 };

static bool is_measured(const wd_train_setup *s)
{
    return s->options.init_student && !*s->resume &&
           wd_block_choice_is_measured(&s->first.dit, s->student.dit.layers);
}

static bool stop(void *context)
{
    (void)context;
    return wd_stop_requested();
}

static wd_block_choice_options options_of(const wd_train_setup *s)
{
    const wd_stepper_options *m = &s->trainer.stepper;
    return (wd_block_choice_options){
        .from = &s->first,
        .layers = s->student.dit.layers,
        .dtype = m->student_dtype,
        .latent_height = m->latent_height,
        .latent_width = m->latent_width,
        .text_tokens = m->text_tokens,
        .text_repeat = m->text_repeat,
        .prompts = s->data.count ? s->data.count : 1,
        .flow_shift = m->trajectory.flow_shift,
        .num_train_timesteps = m->trajectory.num_train_timesteps,
        .seed = m->trajectory.seed,
        .text = m->text,
        .text_context = m->text_context,
        .stop = stop,
    };
}

static void no_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    (void)context, (void)out, (void)prompt, (void)dtype;
}

wd_status wd_start_blocks_plan(wd_memory_plan *plan, const wd_train_setup *s,
                               const wd_devices *devices, wd_err *err)
{
    if (!is_measured(s)) return WD_OK;
    wd_block_choice_options options = options_of(s);
    options.text = no_text;
    return wd_block_choice_plan(plan, &options, devices, 0, err);
}

/* ---- the cache ---- */

/* Writes the file's path: its name says all that the choice depends on. */
static wd_status cache_path(char out[WD_PATH_MAX], const wd_train_setup *s, const char *kernels,
                            wd_err *err)
{
    char key[WD_LORA_KEY_MAX], text[KEY_TEXT], name[64];
    const wd_block_choice_options o = options_of(s);
    WD_TRY(wd_pipeline_weights_key(key, &s->first, wd_student_expert(&s->first), "", err));
    snprintf(text, sizeof text,
             "2 %s %s %s %s %" PRId64 " %s %" PRId64 "x%" PRId64 " %" PRId64 " %" PRId64
             " %.9g %" PRId64 " %" PRIu64,
             key, s->prompts_key, s->text_encoder_key, kernels ? kernels : "", o.layers,
             wd_dtype_file_name(o.dtype), o.latent_height, o.latent_width, o.text_tokens,
             o.text_repeat, o.flow_shift, o.num_train_timesteps, o.seed);
    snprintf(name, sizeof name, "start-blocks-%016llx.json",
             (unsigned long long)XXH3_64bits(text, strlen(text)));
    return wd_path_join(out, s->cache_dir, name, err);
}

/* Whether these are blocks that a choice may give: ascending, with the first and the last one. */
static bool is_choice(const int64_t *block, int64_t count, int64_t layers, int64_t of)
{
    if (count != layers || block[0] != 0 || block[count - 1] != of - 1) return false;
    for (int64_t i = 1; i < count; i++)
        if (block[i] <= block[i - 1]) return false;
    return true;
}

bool wd__start_blocks_read(int64_t *block, const char *path, int64_t layers, int64_t of)
{
    json_t *json;
    wd_err err;
    int64_t count = 0;
    if (!wd_path_exists(path)) return false;
    wd_status status = wd_json_load(&json, path, &err);
    if (status == WD_OK) {
        const wd_json_reader r = {.object = json, .where = path};
        status = wd_json_ints(block, &count, layers, r, "blocks", WD_JSON_REQUIRED, &err);
        json_decref(json);
    }
    if (status == WD_OK && is_choice(block, count, layers, of)) return true;
    wd_log(WD_LOG_WARNING, "%s: is damaged, so blocks are chosen anew", path);
    return false;
}

/* What cannot be kept is chosen again by the next run. */
static void write_cache(const char *path, const wd_train_setup *s, const int64_t *block)
{
    wd_err err = {0};
    json_t *list = json_array(), *json = json_pack("{s:o}", "blocks", list);
    for (int64_t i = 0; i < s->student.dit.layers; i++)
        json_array_append_new(list, json_integer((json_int_t)block[i]));
    if (!json || wd_folder_make(s->cache_dir, &err) || wd_json_save(json, path, &err))
        wd_log(WD_LOG_WARNING, "the choice of blocks is not kept: %s",
               json ? err.message : "no memory");
    json_decref(json);
}

/* ---- the choice ---- */

static wd_status choose(int64_t *block, const wd_train_setup *s, const wd_devices *devices,
                        wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_queue *queue;
    const wd_block_choice_options options = options_of(s);
    WD_TRY(cache_path(path, s, s->trainer.kernels, err));
    if (wd__start_blocks_read(block, path, options.layers, s->first.dit.layers)) return WD_OK;
    const double begun = wd_clock_s();
    WD_TRY(wd_queue_open(&queue, devices->device[0], err));
    const wd_status status = wd_block_choice_make(block, &options, queue, err);
    wd_queue_close(queue);
    if (status != WD_OK) return status;
    wd_log(WD_LOG_INFO,
           "%" PRId64 " of %" PRId64 " blocks of --init_student were chosen by what they do to its "
           "own velocities, in %.1f s; %s keeps the choice",
           options.layers, s->first.dit.layers, wd_clock_s() - begun, path);
    write_cache(path, s, block);
    return WD_OK;
}

/* Of rank 0: its choice for all ranks, behind its status. Returns that status on all ranks. */
static wd_status share(int64_t *block, const wd_train_setup *s, wd_status status, wd_err *err)
{
    int64_t *all;
    wd_comm *comm = s->comm;
    const size_t each = 1 + (size_t)s->student.dit.layers;
    WD_TRY(wd_alloc((void **)&all, (size_t)comm->ranks * each, sizeof *all, "blocks", err));
    int64_t *own = all + (size_t)comm->rank * each;
    own[0] = status;
    memcpy(own + 1, block, (each - 1) * sizeof *all);
    wd_comm_allgather_small(comm, all, each * sizeof *all);
    memcpy(block, all + 1, (each - 1) * sizeof *all);
    const bool stopped = all[0] == WD_INTERRUPTED;
    wd_free(all);
    if (!stopped || status == WD_INTERRUPTED) return status;
    return wd_fail(err, WD_INTERRUPTED, "stopped on request while blocks were chosen");
}

wd_status wd_start_blocks_choose(wd_train_setup *s, const wd_devices *devices, wd_err *err)
{
    wd_status status = WD_OK;
    if (!is_measured(s)) return WD_OK;
    WD_TRY(wd_alloc((void **)&s->blocks, (size_t)s->student.dit.layers, sizeof *s->blocks, "blocks",
                    err));
    if (!s->comm || !s->comm->rank) status = choose(s->blocks, s, devices, err);
    if (status != WD_OK && status != WD_INTERRUPTED) return status;
    if (wd_train_ranks(s) > 1) status = share(s->blocks, s, status, err);
    s->trainer.stepper.blocks = s->blocks;
    return status;
}
