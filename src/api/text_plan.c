/* The plan of the text: see api/text_plan.h. */
#include "api/text_plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/log.h"
#include "core/memory.h"

/* Sets the number of rows of text that teacher and student compute: as many as the prompts need,
 * or, for a resumed run, as many as it began with. */
static wd_status choose_text(wd_train_setup *s, wd_err *err)
{
    wd_machine_options *m = &s->trainer.machine;
    m->text_tokens = s->embeds.text_tokens;
    m->text_repeat = s->embeds.text_repeat;
    wd_prompt_embeds_key(s->prompts_key, &s->embeds, s->data.count);
    snprintf(s->text_encoder_key, sizeof s->text_encoder_key, "%s",
             wd_text_cache_key(s->embeds.cache));
    if (*s->resume) {
        WD_TRY(wd_train_setup_key_teacher(s, err));
        WD_TRY(wd_trainer_resume_options(&s->trainer, err));
    }
    s->embeds.text_tokens = m->text_tokens; /* a resumed run may have more */
    s->embeds.text_repeat = m->text_repeat;
    wd_log(WD_LOG_DEBUG, "text: %" PRId64 " rows are computed, the last stands for %" PRId64,
           m->text_tokens, m->text_repeat);
    return WD_OK;
}

/* ---- ranks ---- */

static void gather(void *comm, void *data, const size_t *at)
{
    wd_comm_wait(comm, wd_comm_gather_all(comm, WD_LANE_CONTROL, data, at, NULL));
}

/* Ranks encode together, and one rank of each machine writes: the ranks of a machine see the same
 * folder, other machines may have another one. */
static wd_status share_text(wd_train_setup *s, wd_err *err)
{
    wd_comm *comm = s->trainer.machine.comm;
    if (!comm || comm->ranks == 1 || !comm->vtable)
        return WD_OK; /* the ranks of a plan do not run */
    const wd_text_share share = {.part = comm->rank,
                                 .parts = comm->ranks,
                                 .writes = comm->host_rank == 0,
                                 .gather = gather,
                                 .context = comm};
    return wd_text_cache_share(s->embeds.cache, &share, err);
}

/* Tokenizes the prompts, and plans the memory of encoding those that the cache lacks. */
wd_status wd_text_plan(wd_memory_plan *plan, wd_train_setup *s, wd_devices *devices, int device,
                       wd_err *err)
{
    WD_TRY(wd_prompt_embeds_open(&s->embeds, s->cache_dir, &s->teacher, s->prompt,
                                 s->data.count + s->samples, s->options.negative_prompt,
                                 s->options.max_sequence_length, s->encoder_dtype, err));
    s->trainer.kernels = wd_device_traits(devices->device[0])->kernels;
    WD_TRY(choose_text(s, err));
    WD_TRY(share_text(s, err));
    return wd_text_plan_encoding(plan, s, devices, device, err);
}

wd_status wd_text_plan_encoding(wd_memory_plan *plan, const wd_train_setup *s,
                                const wd_devices *devices, int device, wd_err *err)
{
    const int place = wd_plan_place(devices, device);
    wd_device *dry = NULL;
    wd_queue *dry_queue = NULL;
    wd_status status;
    int64_t before;
    wd_plan_add(plan, "tokenizer", WD_PLAN_TOKENS, WD_PLAN_HOST,
                wd_text_cache_tokenizer_bytes(s->embeds.cache));
    WD_TRY_OUT(wd_device_open_dry(&dry, devices->device[device], err));
    before = wd_memory_held();
    wd_memory_restart_peak();
    WD_TRY_OUT(wd_queue_open(&dry_queue, dry, err));
    WD_TRY_OUT(wd_text_cache_encode(s->embeds.cache, dry_queue, err));
    wd_plan_add(plan, "text encoder", WD_PLAN_TEXT, place, wd_device_bytes_peak(dry));
    wd_plan_add_parts(plan, WD_PLAN_TEXT, place, dry);
    wd_plan_add(plan, "workspace of a queue", WD_PLAN_TEXT, place,
                wd_queue_workspace_bytes(dry_queue));
    wd_plan_add(plan, "prompt embeddings", WD_PLAN_TEXT, WD_PLAN_HOST,
                (size_t)(wd_memory_peak() - before));
    WD_TRY_OUT(wd_device_check_kernels(err));
    WD_TRY_OUT(wd_device_check_planned(dry, err));
out:
    wd_queue_close(dry_queue);
    wd_device_close(dry);
    return status;
}
