/* The plan of the text: see api/plan/encoding_plan.h. */
#include "api/plan/encoding_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/plan/train_cluster.h"
#include "api/setup/memory_report.h"
#include "api/setup/train_setup.h"
#include "core/log.h"
#include "core/memory.h"

/* Prompts of validation never say how many rows there are, which would change the student's bits.
 */
static void say_cut(const wd_train_setup *s)
{
    const int64_t cut = wd_prompt_embeds_are_cut(&s->embeds);
    if (!cut || (s->comm && s->comm->rank)) return;
    wd_log(WD_LOG_WARNING,
           "validation: %" PRId64
           " of its prompts have more tokens than any that the student trains "
           "on, and are cut to as many",
           cut);
}

/* Sets the number of rows of text that teacher and student compute: as many as the prompts need,
 * or, for a resumed run, as many as it began with. */
static wd_status choose_text(wd_train_setup *s, wd_err *err)
{
    wd_stepper_options *m = &s->trainer.stepper;
    const int64_t trained = s->data.count + s->samples;
    if (s->validation.prompts) wd_prompt_embeds_cut(&s->embeds, trained);
    m->text_tokens = s->embeds.text_tokens;
    m->text_repeat = s->embeds.text_repeat;
    wd_prompt_embeds_key(s->prompts_key, &s->embeds, 0, s->data.count);
    snprintf(s->text_encoder_key, sizeof s->text_encoder_key, "%s",
             wd_text_cache_key(s->embeds.cache));
    WD_TRY(wd_stored_targets_compare(s, err));
    if (*s->resume) {
        WD_TRY(wd_train_setup_key_teacher(s, err));
        WD_TRY(wd_trainer_resume_options(&s->trainer, err));
    }
    s->embeds.text_tokens = m->text_tokens; /* a resumed run may have more */
    s->embeds.text_repeat = m->text_repeat;
    wd_prompt_embeds_key(s->validation_key, &s->embeds, trained, s->validation.prompts);
    say_cut(s);
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
    wd_comm *comm = s->comm;
    if (!comm || comm->ranks == 1 || !comm->vtable)
        return WD_OK; /* the ranks of a plan do not run */
    const wd_text_share share = {.part = comm->rank,
                                 .parts = comm->ranks,
                                 .writes = comm->host_rank == 0,
                                 .gather = gather,
                                 .context = comm};
    return wd_text_cache_share(s->embeds.cache, &share, err);
}

/* ---- memory ---- */

/* Adds the memory of encoding on a device: of the prompts that the cache lacks, or the most that
 * any prompts take. WD_UNSUPPORTED: the device cannot. */
static wd_status plan_on(wd_memory_plan *plan, const wd_train_setup *s, const wd_devices *devices,
                         int device, bool most, wd_err *err)
{
    const int place = wd_memory_place(devices, device);
    wd_device *dry = NULL;
    wd_queue *dry_queue = NULL;
    wd_status status;
    int64_t before;
    WD_TRY_OUT(wd_device_open_dry(&dry, devices->device[device], err));
    before = wd_memory_held();
    wd_memory_restart_peak();
    WD_TRY_OUT(wd_queue_open(&dry_queue, dry, err));
    if (most)
        WD_TRY_OUT(wd_text_cache_rehearse(&s->teacher, s->options.max_sequence_length,
                                          s->encoder_dtype, dry_queue, err));
    else
        WD_TRY_OUT(wd_text_cache_encode(s->embeds.cache, dry_queue, err));
    wd_memory_plan_add(plan, "text encoder", WD_MEMORY_TEXT, place, wd_device_bytes_peak(dry));
    wd_memory_plan_add_parts(plan, WD_MEMORY_TEXT, place, dry);
    wd_memory_plan_add(plan, "workspace of a queue", WD_MEMORY_TEXT, place,
                       wd_queue_workspace_bytes(dry_queue));
    wd_memory_plan_add(plan, "prompt embeddings", WD_MEMORY_TEXT, WD_MEMORY_HOST,
                       (size_t)(wd_memory_peak() - before));
    WD_TRY_OUT(wd_device_check_kernels(err));
    WD_TRY_OUT(wd_device_check_planned(dry, err));
out:
    wd_queue_close(dry_queue);
    wd_device_close(dry);
    return status;
}

/* What decides the bits of a device's embeddings; NULL: those of any processor, which simulated
 * devices have, too. */
static const char *kernels_of(const wd_devices *d, int device)
{
    const char *kernels = wd_device_traits(d->device[device])->kernels;
    const char *processor = wd_device_traits(d->device[d->processor])->kernels;
    return strcmp(kernels, processor) ? kernels : NULL;
}

wd_status wd__encoding_plan_memory(wd_memory_plan *plan, const wd_train_setup *s,
                                   const wd_devices *devices, int device, wd_err *err)
{
    const char *kernels = kernels_of(devices, device);
    const bool other = strcmp(kernels ? kernels : "", s->text_kernels);
    wd_memory_plan_add(plan, "tokenizer", WD_MEMORY_TOKENS, WD_MEMORY_HOST,
                       wd_text_cache_tokenizer_bytes(s->embeds.cache));
    return plan_on(plan, s, devices, device, other, err);
}

/* ---- the device ---- */

enum { WHY = 256 };

/* What the first device of a rank offers. */
typedef struct offer {
    char kernels[WD_KERNELS_TEXT];
    char why_not[WHY]; /* "": it can encode all prompts */
} offer;

static wd_status make_offer(offer *out, const wd_train_setup *s, const wd_devices *d, wd_err *err)
{
    char needed[32], there[32];
    wd_memory_plan plan = {0};
    wd_err why = {0};
    const size_t most = wd_device_bytes_max(d->device[0]);
    *out = (offer){0};
    snprintf(out->kernels, sizeof out->kernels, "%s", wd_device_traits(d->device[0])->kernels);
    if (d->processor == 0) return WD_OK;
    const wd_status status = plan_on(&plan, s, d, 0, true, &why);
    if (status == WD_UNSUPPORTED) {
        snprintf(out->why_not, WHY, "%.*s", WHY - 1, why.message);
        return WD_OK;
    }
    if (status != WD_OK) {
        if (err) *err = why;
        return status;
    }
    if (wd_memory_plan_peak(&plan, 0) > most)
        snprintf(out->why_not, WHY, "%s has %s, and encoding may take %s", d->name[0],
                 wd_bytes_text(there, sizeof there, most),
                 wd_bytes_text(needed, sizeof needed, wd_memory_plan_peak(&plan, 0)));
    return WD_OK;
}

/* Writes why the first devices of `ranks` ranks do not encode into `why`; "": they do. */
static void compare_offers(char why[WHY], const offer *all, int ranks)
{
    *why = 0;
    for (int r = 0; r < ranks && !*why; r++) {
        if (*all[r].why_not && ranks > 1)
            snprintf(why, WHY, "on rank %d %s", r, all[r].why_not);
        else if (*all[r].why_not)
            memcpy(why, all[r].why_not, WHY);
        else if (strcmp(all[r].kernels, all[0].kernels))
            snprintf(why, WHY, "ranks 0 and %d have devices of different kinds", r);
    }
}

/* Whether the resumed run was begun with embeddings of a processor. */
static wd_status was_processor(bool *out, const wd_train_setup *s, wd_err *err)
{
    char kernels[WD_KERNELS_TEXT] = "";
    if (*s->resume) WD_TRY(wd_trainer_resumed_text(kernels, s->resume, err));
    *out = *s->resume && !*kernels;
    return WD_OK;
}

/* *out = the device that encodes where no map says so. All ranks take their first device, or all
 * take the processor. */
static wd_status choose_device(int *out, char why[WHY], const wd_train_setup *s,
                               const wd_devices *d, wd_err *err)
{
    offer mine, *all = &mine;
    bool begun;
    WD_TRY(make_offer(&mine, s, d, err));
    WD_TRY(was_processor(&begun, s, err));
    if (begun && !kernels_of(d, 0)) begun = false; /* the first device has a processor's bits */
    if (begun) snprintf(mine.why_not, WHY, "the run was begun so");
    const int ranks = wd__train_has_others(s) ? wd_train_ranks(s) : 1;
    if (ranks > 1) WD_TRY(wd__train_gather((void **)&all, &mine, sizeof mine, s->comm, err));
    compare_offers(why, all, ranks);
    if (all != &mine) wd_free(all);
    *out = *why ? d->processor : 0;
    return WD_OK;
}

static wd_status choose_encoder(wd_teacher_map *map, wd_train_setup *s, const wd_devices *d,
                                wd_err *err)
{
    char why[WHY];
    WD_TRY(choose_device(&map->usual_text_encoder, why, s, d, err));
    if (!map->given) {
        map->text_encoder = map->usual_text_encoder;
        if (*why && d->processor != 0)
            wd_log(WD_LOG_INFO, "the processor encodes the prompts: %s", why);
    }
    const char *kernels = kernels_of(d, map->text_encoder);
    snprintf(s->text_kernels, sizeof s->text_kernels, "%s", kernels ? kernels : "");
    s->trainer.text_kernels = kernels ? s->text_kernels : NULL;
    return WD_OK;
}

wd_status wd_encoding_plan(wd_memory_plan *plan, wd_train_setup *s, wd_devices *devices,
                           wd_teacher_map *map, wd_err *err)
{
    WD_TRY(choose_encoder(map, s, devices, err));
    const wd_text_place place = {s->text_dir, s->trainer.text_kernels};
    WD_TRY(wd_prompt_embeds_open(&s->embeds, &place, &s->teacher, s->prompt,
                                 s->data.count + s->samples + s->validation.prompts,
                                 s->options.negative_prompt, s->options.max_sequence_length,
                                 s->encoder_dtype, err));
    s->trainer.kernels = wd_device_traits(devices->device[0])->kernels;
    WD_TRY(choose_text(s, err));
    WD_TRY(share_text(s, err));
    return wd__encoding_plan_memory(plan, s, devices, map->text_encoder, err);
}
