/* Agreement of ranks: see api/jobs/agreement.h. */
#include "api/jobs/agreement.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "api/plan/train_cluster.h"
#include "core/memory.h"
#include "train/network/init.h"
#include "train/output/checkpoint.h"

static const char alike[] =
    "All ranks must be started alike, with the same program, options and files";

static wd_agreed *add(wd_agreement *a, const char *name, const char *remedy)
{
    assert(a->count < WD_AGREEMENT_MAX);
    snprintf(a->name[a->count], sizeof a->name[a->count], "%s", name);
    a->remedy[a->count] = remedy;
    a->value[a->count] = (wd_agreed){0};
    return &a->value[a->count++];
}

void wd__agree_on_text(wd_agreement *agreement, const char *name, const char *text)
{
    wd_agreed *value = add(agreement, name, alike);
    value->hash = XXH3_64bits(text, strlen(text));
    snprintf(value->text, sizeof value->text, "%s", *text ? text : "nothing");
}

/* Adds a key as the value of `name`. Errors show `text`, which may differ between ranks. `remedy`
 * (borrowed) tells the user what to do if keys differ. */
static void agree_on_key(wd_agreement *agreement, const char *name, const char *key,
                         const char *text, const char *remedy)
{
    wd_agreed *value = add(agreement, name, remedy);
    value->hash = XXH3_64bits(key, strlen(key));
    snprintf(value->text, sizeof value->text, "%s", text);
}

void wd__agree_on_bytes(wd_agreement *agreement, const char *name, const void *data, size_t bytes)
{
    add(agreement, name, alike)->hash = XXH3_64bits(data, bytes);
}

/* The first rank whose value of an item differs from that of rank 0; 0: none. */
static int who_differs(const wd_agreed *all, int ranks, int count, int item)
{
    for (int r = 1; r < ranks; r++)
        if (all[r * count + item].hash != all[item].hash) return r;
    return 0;
}

static int how_many(const wd_agreed *all, int ranks, int count, int item)
{
    int n = 0;
    for (int r = 1; r < ranks; r++) n += all[r * count + item].hash != all[item].hash;
    return n;
}

static wd_status compare(const wd_agreement *a, const wd_agreed *all, int ranks, wd_err *err)
{
    for (int i = 0; i < a->count; i++) {
        const int other = who_differs(all, ranks, a->count, i);
        const wd_agreed *first = &all[i], *second = &all[other * a->count + i];
        char what[3 * WD_AGREED_TEXT] = "", more[32] = "";
        if (!other) continue;
        if (*first->text) snprintf(what, sizeof what, ": %s and %s", first->text, second->text);
        const int others = how_many(all, ranks, a->count, i) - 1;
        if (others) snprintf(more, sizeof more, " and %d more", others);
        return wd_fail(err, WD_MISMATCH, "rank 0 and rank %d%s differ in %s%s. %s", other, more,
                       a->name[i], what, a->remedy[i]);
    }
    return WD_OK;
}

wd_status wd__agreement_check(const wd_agreement *agreement, wd_comm *comm, wd_err *err)
{
    wd_agreed *all;
    const size_t bytes = (size_t)agreement->count * sizeof *all;
    WD_TRY(wd_alloc((void **)&all, (size_t)comm->ranks, bytes, "what ranks say", err));
    memcpy((char *)all + (size_t)comm->rank * bytes, agreement->value, bytes);
    wd_comm_allgather_small(comm, all, bytes);
    const wd_status status = compare(agreement, all, comm->ranks, err);
    wd_free(all);
    return status;
}

/* ---- the values of a run ---- */

/* Whether an option may differ between ranks: paths, and options of a single rank. */
static bool is_own(const wd_option *option)
{
    static const char *const own[] = {"local_rank", "num_threads", "host_memory", "measure_rates"};
    if (option->flags & (WD_OPTION_FILE | WD_OPTION_LEGACY)) return true;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(option->name, own[i])) return true;
    return false;
}

static void add_options(wd_agreement *a, const wd_train_options *options)
{
    int64_t count;
    const wd_option *table = wd_options_of(WD_JOB_TRAIN, &count);
    char text[1024];
    for (int64_t i = 0; i < count; i++)
        if (!is_own(&table[i]))
            wd__agree_on_text(a, table[i].name,
                              wd_option_text(text, sizeof text, options, &table[i]));
}

/* Adds the key of a model's files, since folders of the same name on two hosts may differ. */
static void add_files(wd_agreement *a, const char *name, const char *key, const char *remedy)
{
    char host[32] = "", text[WD_AGREED_TEXT];
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "%.8s on %s", key, host);
    agree_on_key(a, name, key, text, remedy);
}

static void add_teacher(wd_agreement *a, const wd_train_setup *s)
{
    static const char remedy[] =
        "One copy of them is another revision, or not whole: let --teacher_path be the same folder "
        "on all hosts, or copy it anew";
    add_files(a, "the teacher's weights", s->teacher_key, remedy);
    add_files(a, "the text encoder's weights", s->text_encoder_key, remedy);
}

/* Each rank reads the weights that its student starts from. */
static wd_status add_start(wd_agreement *a, const wd_train_setup *s, wd_err *err)
{
    char key[WD_LORA_KEY_MAX];
    if (!s->options.init_student) return WD_OK;
    WD_TRY(wd_pipeline_weights_key(key, &s->first, wd_student_expert(&s->first), "", err));
    add_files(a, "the weights that the student starts from", key,
              "One copy of them is another revision, or not whole: let --init_student be the same "
              "model on all hosts, or copy it anew");
    return WD_OK;
}

/* Adds values that are read from files: the student's and the teacher's configurations. `subject`:
 * the model; "": the run. */
static wd_status add_facts(wd_agreement *a, json_t *facts, const char *subject, wd_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(facts, key, value)
    {
        char name[WD_AGREED_NAME];
        if (json_is_object(value)) {
            WD_TRY(add_facts(a, value, key, err));
            continue;
        }
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
        if (!text) return wd_fail(err, WD_OUT_OF_MEMORY, "no memory to compare ranks");
        snprintf(name, sizeof name, "%s%s%s", subject, *subject ? "'s " : "", key);
        wd__agree_on_text(a, name, text);
        free(text); /* allocated by jansson */
    }
    return WD_OK;
}

static wd_status add_run(wd_agreement *a, const wd_train_setup *s, wd_err *err)
{
    json_t *facts;
    WD_TRY(wd_trainer_facts(&facts, &s->trainer, err));
    const wd_status status = add_facts(a, facts, "", err);
    json_decref(facts);
    return status;
}

/* Writes a checkpoint's own name, without the folders above it and without slashes at its end. */
static void name_checkpoint(char out[WD_AGREED_TEXT], const char *path)
{
    size_t end = strlen(path), begin;
    while (end && path[end - 1] == '/') end--;
    for (begin = end; begin && path[begin - 1] != '/';) begin--;
    snprintf(out, WD_AGREED_TEXT, "%.*s", (int)(end - begin), path + begin);
}

/* Adds a checkpoint. Checkpoints of different runs differ, since they contain the time that the run
 * took. */
static wd_status add_checkpoint(wd_agreement *a, const char *path, wd_err *err)
{
    char hash[33] = "", step[WD_AGREED_TEXT];
    name_checkpoint(step, *path ? path : "none");
    wd__agree_on_text(a, "the checkpoint that they find", step);
    if (*path) WD_TRY(wd_checkpoint_hash(hash, path, err));
    add_files(a, "what is in the checkpoint that they find", hash,
              "They are of different runs: let --output_dir or --resume be the same folder on all "
              "hosts, or copy it anew");
    return WD_OK;
}

/* Adds the targets that ranks find in the folder of --targets. */
static void add_targets(wd_agreement *a, const wd_train_setup *s)
{
    char text[64];
    if (!s->store) return;
    snprintf(text, sizeof text, "%.16s, %lld of them", wd_target_store_key(s->store),
             (long long)wd_target_store_count(s->store));
    wd__agree_on_text(a, "the stored targets", text);
}

static void add_prompts(wd_agreement *a, const wd_train_setup *s)
{
    XXH64_hash_t hash = 0;
    const int64_t count = s->data.count + s->samples + s->validation.prompts;
    for (int64_t i = 0; i < count; i++)
        hash = XXH3_64bits_withSeed(s->prompt[i], strlen(s->prompt[i]), hash);
    char key[32], text[WD_AGREED_TEXT];
    snprintf(key, sizeof key, "%016llx", (unsigned long long)hash);
    snprintf(text, sizeof text, "%lld texts", (long long)count);
    agree_on_key(a, "the prompts", key, text, alike);
}

static void add_cluster(wd_agreement *a, const wd_cluster *cluster)
{
    double rates[(1 + WD_PRECISIONS) * WD_PLACED_DEVICES_MAX + 5];
    int n = 0;
    for (int d = 0; d < cluster->devices; d++) {
        for (int k = 0; k < WD_PRECISIONS; k++) rates[n++] = cluster->device[d].flops_per_s[k];
        rates[n++] = cluster->device[d].link_bytes_per_s;
    }
    rates[n++] = cluster->disk_bytes_per_s;
    rates[n++] = cluster->memory_bytes_per_s;
    rates[n++] = cluster->network_bytes_per_s;
    rates[n++] = cluster->adamw_weights_per_s;
    rates[n++] = cluster->ema_weights_per_s;
    wd__agree_on_bytes(a, "what the machine can do", rates, (size_t)n * sizeof *rates);
}

static void add_plan(wd_agreement *a, const wd_strategy_plan *plan)
{
    char line[WD_AGREED_TEXT];
    int64_t what[2 * WD_PLACED_EXPERTS_MAX * WD_PLACED_STAGES_MAX];
    int n = 0;
    const wd_placement *p = &plan->placement;
    snprintf(line, sizeof line, "%s, window %lld, %lld at a time, buffers %d%s",
             wd_strategy_name(plan->strategy), (long long)plan->window,
             (long long)plan->micro_batch, p->buffers,
             plan->decodes_on_processor ? ", sheets on the processor" : "");
    wd__agree_on_text(a, "the plan", line);
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++) {
            what[n++] = p->place[e][s].home;
            what[n++] = p->place[e][s].device;
        }
    wd__agree_on_bytes(a, "where the teacher's blocks are", what, (size_t)n * sizeof *what);
}

wd_status wd__train_agree(const wd_train_setup *setup, wd_err *err)
{
    wd_agreement *a;
    wd_status status;
    char kernels[WD_KERNELS_TEXT];
    if (wd_train_ranks(setup) == 1) return WD_OK;
    WD_TRY(wd_device_kernels(kernels, err));
    WD_TRY(wd_alloc((void **)&a, 1, sizeof *a, "what ranks say", err));
    wd__agree_on_text(a, "the program's version", wd_version());
    wd__agree_on_text(a, "the kernels", kernels);
    add_targets(a, setup);
    add_prompts(a, setup); /* before the options, some of which follow from their number */
    add_options(a, &setup->options);
    add_teacher(a, setup);
    WD_TRY_OUT(add_start(a, setup, err));
    WD_TRY_OUT(add_run(a, setup, err));
    WD_TRY_OUT(add_checkpoint(a, setup->resume, err));
    status = wd__agreement_check(a, setup->comm, err);
out:
    wd_free(a);
    return status;
}

wd_status wd__train_agree_on_plan(const wd_train_plan *plan, const wd_train_setup *setup,
                                  wd_err *err)
{
    wd_agreement *a;
    if (wd_train_ranks(setup) == 1) return WD_OK;
    WD_TRY(wd_alloc((void **)&a, 1, sizeof *a, "what ranks say", err));
    add_cluster(a, &plan->input.cluster);
    add_plan(a, &plan->chosen);
    wd__agree_on_text(a, "where the optimizer's state is", setup->options.optimizer_device);
    wd__agree_on_text(a, "where the EMA is", setup->options.ema_device);
    const wd_status status = wd__agreement_check(a, setup->comm, err);
    wd_free(a);
    return status;
}
