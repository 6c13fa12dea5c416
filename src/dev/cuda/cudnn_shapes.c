/* See cudnn_shapes.h. */
#include "dev/cuda/cudnn_shapes.h"

#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "dev/cuda/cudnn_graph.h"

struct wd_cudnn_family {
    _Alignas(8) char one[WD_CUDNN_KEY_MAX]; /* the key of one sample */
    wd_cudnn_choice choice;
    bool chosen;
    bool in_other_form;
    bool own; /* the caller's own kernel computes it */
    bool ran; /* cuDNN has: it goes on, or fails */
};

void wd__cudnn_shapes_open(wd_cudnn_shapes *out, const wd_cudnn_kind *kind,
                           const wd_cudnn_target *target)
{
    WD_REQUIRE(kind->key_bytes <= WD_CUDNN_KEY_MAX, "keys of %zu bytes", kind->key_bytes);
    *out = (wd_cudnn_shapes){.kind = kind, .target = target};
    pthread_mutex_init(&out->lock, NULL);
}

void wd__cudnn_shapes_close(wd_cudnn_shapes *s)
{
    while (s->shapes > 0) {
        wd__cudnn_plan_close(&s->shape[--s->shapes]->plan);
        wd_free(s->shape[s->shapes]);
    }
    while (s->families > 0) wd_free(s->family[--s->families]);
    wd_free(s->shape);
    wd_free(s->family);
    pthread_mutex_destroy(&s->lock);
}

/* ---- texts ---- */

static void append_choice(char *out, size_t bytes, const wd_cudnn_choice *choice)
{
    wd_append_text(out, bytes, strlen(out), "engine %lld", (long long)choice->engine);
    for (int i = 0; i < choice->knobs; i++)
        wd_append_text(out, bytes, strlen(out), "%s %u=%lld", i ? "" : ", knobs", choice->knob[i],
                       (long long)choice->value[i]);
}

bool wd__cudnn_shapes_describe(wd_cudnn_shapes *s, int64_t i, char *out, size_t bytes)
{
    char name[WD_CUDNN_TEXT_MAX];
    pthread_mutex_lock(&s->lock);
    const bool there = i >= 0 && i < s->shapes;
    if (there) {
        const wd_cudnn_planned *shape = s->shape[i];
        *out = 0;
        s->kind->name(name, shape->key);
        wd_append_text(out, bytes, 0, "%s: ", name);
        if (shape->family->own) {
            wd_append_text(out, bytes, strlen(out), "a kernel of this program");
        } else {
            append_choice(out, bytes, &shape->family->choice);
            wd_append_text(out, bytes, strlen(out), ", %lld bytes of workspace, planned in %.0f ms",
                           (long long)shape->plan.workspace_bytes, shape->plan_ms);
            if (memcmp(shape->planned, shape->key, s->kind->key_bytes)) {
                s->kind->name(name, shape->planned);
                wd_append_text(out, bytes, strlen(out), ", as %s", name);
            }
        }
    }
    pthread_mutex_unlock(&s->lock);
    return there;
}

/* From now on the caller's own kernel computes the family. `why`: what was refused. */
static void take_refusal(const wd_cudnn_shapes *s, wd_cudnn_family *family, const wd_err *why)
{
    char name[WD_CUDNN_TEXT_MAX];
    s->kind->name(name, family->one);
    family->own = true;
    wd_log(WD_LOG_WARNING,
           "%s; so a kernel of this program computes %s, with any number of samples, correctly but "
           "slowly: install a newer cuDNN 9",
           why->message, name);
}

/* ---- planning; the lock is held ---- */

/* The plan of `key`, just as it is. */
static wd_status plan_key(wd_cudnn_planned *shape, const wd_cudnn_shapes *s, const void *key,
                          const wd_cudnn_choice *choice, wd_err *err)
{
    char name[WD_CUDNN_TEXT_MAX];
    wd_cudnn_graph graph;
    s->kind->name(name, key);
    wd__cudnn_graph_open(&graph, s->target);
    s->kind->draw(&graph, key);
    WD_TRY(
        wd__cudnn_plan_open(&shape->plan, &graph, choice, s->kind->workspace_max(key), name, err));
    memcpy(shape->planned, key, s->kind->key_bytes);
    return WD_OK;
}

/* The plan of a shape with one engine: for all samples at once or, where that is refused, for one
 * of them. */
static wd_status plan_with(wd_cudnn_planned *shape, const wd_cudnn_shapes *s, bool in_other_form,
                           const wd_cudnn_choice *choice, wd_err *err)
{
    _Alignas(8) char all[WD_CUDNN_KEY_MAX], one[WD_CUDNN_KEY_MAX];
    memcpy(all, shape->key, sizeof all);
    if (in_other_form) s->kind->take_other_form(all);
    memcpy(one, all, sizeof one);
    s->kind->take_one(one);
    const wd_status status = plan_key(shape, s, all, choice, err);
    if (status != WD_UNSUPPORTED || !memcmp(one, all, s->kind->key_bytes)) return status;
    return plan_key(shape, s, one, choice, err);
}

/* Plans a shape with the first engine of those for one sample that takes it. WD_UNSUPPORTED: none
 * does, in this form. */
static wd_status choose_in_form(wd_cudnn_planned *shape, const wd_cudnn_shapes *s,
                                bool in_other_form, wd_err *err)
{
    char name[WD_CUDNN_TEXT_MAX];
    _Alignas(8) char one[WD_CUDNN_KEY_MAX];
    int count = 0;
    wd_cudnn_choice choice[WD_CUDNN_CANDIDATES_MAX];
    wd_cudnn_graph graph;
    memcpy(one, shape->family->one, sizeof one);
    if (in_other_form && !(s->kind->take_other_form && s->kind->take_other_form(one)))
        return WD_UNSUPPORTED;
    s->kind->name(name, one);
    wd__cudnn_graph_open(&graph, s->target);
    s->kind->draw(&graph, one);
    wd_status status =
        wd__cudnn_candidates(choice, &count, &graph, s->kind->notes_refused(one), name, err);
    wd__cudnn_graph_close(&graph);
    if (status != WD_OK) return status;
    status = WD_UNSUPPORTED;
    for (int i = 0; i < count && status == WD_UNSUPPORTED; i++) {
        wd_err why; /* of several engines that fail the first is told */
        status = plan_with(shape, s, in_other_form, &choice[i], &why);
        if (status == WD_OK) shape->family->choice = choice[i];
        if (status != WD_OK && err && (!i || status != WD_UNSUPPORTED)) *err = why;
    }
    return status;
}

/* Plans a shape with its family's engine, which is chosen now if it was not yet. */
static wd_status plan_shape(wd_cudnn_planned *shape, const wd_cudnn_shapes *s, wd_err *err)
{
    wd_cudnn_family *family = shape->family;
    if (family->chosen) return plan_with(shape, s, family->in_other_form, &family->choice, err);
    wd_err other;
    wd_status status = choose_in_form(shape, s, false, err);
    if (status == WD_UNSUPPORTED) {
        const wd_status second = choose_in_form(shape, s, true, &other);
        if (second == WD_UNSUPPORTED) return status;
        if (second != WD_OK && err) *err = other;
        status = second;
        family->in_other_form = true;
    }
    family->chosen = status == WD_OK;
    return status;
}

static wd_status find_family(wd_cudnn_family **out, wd_cudnn_shapes *s, const void *key,
                             wd_err *err)
{
    _Alignas(8) char one[WD_CUDNN_KEY_MAX] = {0};
    wd_cudnn_family *next;
    memcpy(one, key, s->kind->key_bytes);
    s->kind->take_one(one);
    for (int64_t i = 0; i < s->families; i++)
        if (!memcmp(s->family[i]->one, one, s->kind->key_bytes)) {
            *out = s->family[i];
            return WD_OK;
        }
    WD_TRY(wd_resize((void **)&s->family, (size_t)s->families + 1, sizeof(void *),
                     "the list of shapes for cuDNN", err));
    WD_TRY(wd_alloc((void **)&next, 1, sizeof *next, "a shape for cuDNN", err));
    memcpy(next->one, one, sizeof one);
    *out = s->family[s->families++] = next;
    return WD_OK;
}

static wd_status add_shape(wd_cudnn_shapes *s, const void *key, wd_err *err)
{
    wd_cudnn_family *family;
    wd_cudnn_planned *shape;
    WD_TRY(find_family(&family, s, key, err));
    WD_TRY(wd_resize((void **)&s->shape, (size_t)s->shapes + 1, sizeof(void *),
                     "the list of plans of cuDNN", err));
    WD_TRY(wd_alloc((void **)&shape, 1, sizeof *shape, "a plan of cuDNN", err));
    shape->family = family;
    memcpy(shape->key, key, s->kind->key_bytes);
    wd_status status = WD_OK;
    wd_err why;
    if (!family->own) {
        const double begun = wd_clock_s();
        status = plan_shape(shape, s, &why);
        shape->plan_ms = 1e3 * (wd_clock_s() - begun);
    }
    if (status == WD_UNSUPPORTED && !family->ran) {
        take_refusal(s, family, &why);
        status = WD_OK;
    }
    if (status != WD_OK) {
        wd_free(shape);
        if (status == WD_UNSUPPORTED) status = why.status = WD_INTERNAL;
        if (err) *err = why;
        return status;
    }
    s->shape[s->shapes++] = shape;
    return WD_OK;
}

wd_status wd__cudnn_shapes_find(const wd_cudnn_planned **out, wd_cudnn_shapes *s, const void *key,
                                wd_err *err)
{
    int64_t at = 0;
    wd_status status = WD_OK;
    *out = NULL;
    pthread_mutex_lock(&s->lock);
    while (at < s->shapes && memcmp(s->shape[at]->key, key, s->kind->key_bytes)) at++;
    if (at == s->shapes) status = add_shape(s, key, err);
    if (status == WD_OK && !s->shape[at]->family->own) *out = s->shape[at];
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- runs ---- */

wd_status wd__cudnn_planned_run(bool *own, wd_cudnn_shapes *s, const wd_cudnn_planned *shape,
                                wd_cu_stream stream, int count, const int64_t *id,
                                void *const *address, void *workspace, wd_err *err)
{
    wd_err why;
    wd_status status = WD_OK;
    wd_cudnn_family *family = shape->family;
    pthread_mutex_lock(&s->lock);
    if (!family->own) {
        status = wd__cudnn_use_stream(s->target, stream, &why);
        if (status == WD_OK)
            status = wd__cudnn_plan_run(&shape->plan, count, id, address, workspace, &why);
        if (status == WD_UNSUPPORTED && !family->ran) {
            take_refusal(s, family, &why);
            status = WD_OK;
        } else if (status == WD_OK) {
            family->ran = true;
        }
    }
    *own = family->own;
    pthread_mutex_unlock(&s->lock);
    if (status == WD_OK) return WD_OK;
    char text[WD_CUDNN_TEXT_MAX + 256] = "";
    s->kind->name(text, shape->planned);
    wd_append_text(text, sizeof text, strlen(text), ": ");
    append_choice(text, sizeof text, &shape->plan.choice);
    return wd_fail(err, status == WD_UNSUPPORTED ? WD_INTERNAL : status, "%s: %s", text,
                   why.message);
}
