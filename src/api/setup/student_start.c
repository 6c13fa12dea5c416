/* What a student starts from: see api/setup/train_setup.h.
 *
 * Teacher and student exchange latents, velocities and prompt embeddings and nothing else. So a
 * start of any depth, width and size of heads serves, if it has the teacher's latents (channels,
 * patches, and the numbers by which its VAE scales them) and the teacher's width of text. */
#include "api/setup/train_setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/text.h"
#include "model/files/preset.h"
#include "train/network/init.h"

enum { FAULTS_TEXT = 900 };

/* ---- what differs ---- */

typedef struct faults {
    char text[FAULTS_TEXT]; /* as many as fit */
    size_t used;
    int count;
} faults;

static void note(faults *f, const char *what, const char *expected, const char *found)
{
    const char *before = f->count++ ? "; " : "";
    f->used = wd_append_text(f->text, sizeof f->text, f->used, "%s%s: expected %s, found %s",
                             before, what, expected, found);
}

static void compare_ints(faults *f, const char *what, int64_t expected, int64_t found)
{
    char texts[2][24];
    if (expected == found) return;
    snprintf(texts[0], sizeof texts[0], "%" PRId64, expected);
    snprintf(texts[1], sizeof texts[1], "%" PRId64, found);
    note(f, what, texts[0], texts[1]);
}

static void compare_patches(faults *f, const int64_t expected[3], const int64_t found[3])
{
    char texts[2][80];
    if (!memcmp(expected, found, 3 * sizeof *found)) return;
    for (int i = 0; i < 2; i++) {
        const int64_t *p = i ? found : expected;
        snprintf(texts[i], sizeof texts[i], "[%" PRId64 ", %" PRId64 ", %" PRId64 "]", p[0], p[1],
                 p[2]);
    }
    note(f, "patch size (patch_size)", texts[0], texts[1]);
}

/* Notes the first channel whose number differs by more than files round it. */
static void compare_statistics(faults *f, const char *key, const double *expected,
                               const double *found, int64_t channels)
{
    char what[64], texts[2][24];
    for (int64_t c = 0; c < channels; c++) {
        if (fabs(expected[c] - found[c]) <= 1e-4 * fmax(1, fabs(expected[c]))) continue;
        snprintf(what, sizeof what, "the VAE's %s of channel %" PRId64, key, c);
        snprintf(texts[0], sizeof texts[0], "%.6g", expected[c]);
        snprintf(texts[1], sizeof texts[1], "%.6g", found[c]);
        note(f, what, texts[0], texts[1]);
        return;
    }
}

static void compare_vaes(faults *f, const wd_vae_config *teacher, const wd_vae_config *start)
{
    compare_ints(f, "the VAE's channels (z_dim)", teacher->z_dim, start->z_dim);
    compare_ints(f, "pixels to a latent (scale_factor_spatial)", teacher->scale_factor_spatial,
                 start->scale_factor_spatial);
    if (teacher->z_dim != start->z_dim) return;
    compare_statistics(f, "latents_mean", teacher->latents_mean, start->latents_mean,
                       teacher->z_dim);
    compare_statistics(f, "latents_std", teacher->latents_std, start->latents_std, teacher->z_dim);
}

static wd_status check(const wd_pipeline *start, const wd_pipeline *teacher, const char *name,
                       wd_err *err)
{
    const wd_dit_config *t = &teacher->dit, *s = &start->dit;
    faults f = {0};
    compare_ints(&f, "latent channels (in_channels)", t->in_channels, s->in_channels);
    compare_ints(&f, "channels of velocities (out_channels)", t->out_channels, s->out_channels);
    compare_ints(&f, "text width (text_dim)", t->text_dim, s->text_dim);
    compare_patches(&f, t->patch, s->patch);
    if (teacher->has[WD_COMPONENT_VAE] && start->has[WD_COMPONENT_VAE])
        compare_vaes(&f, &teacher->vae, &start->vae);
    if (!f.count) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "--init_student %s: does not agree with the teacher: %s. A student has the "
                   "teacher's latents and text: start from a model of the same VAE and text "
                   "encoder, or leave --init_student out",
                   name, f.text);
}

/* ---- opening ---- */

static wd_status refuse_preset(const char *name, wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--init_student %s: a preset has no weights, so it is for `plan` alone; its "
                   "weights are %s on the Hub: give that, a folder, or a file",
                   name, wd_preset_hub_id(name));
}

static wd_status open_model(wd_pipeline *out, const char *name, bool ignores_unknown, wd_err *err)
{
    const bool is_file = wd_path_exists(name) && !wd_path_is_folder(name);
    const wd_pipeline_parts parts = {.part = {[WD_COMPONENT_TRANSFORMER] = is_file ? name : NULL},
                                     .ignores_unknown = ignores_unknown,
                                     .is_start = true};
    WD_TRY(wd_pipeline_open_parts(out, is_file ? NULL : name, &parts, err));
    WD_TRY(wd_pipeline_require_experts(out, err));
    return wd_pipeline_check_weights(out, WD_COMPONENT_TRANSFORMER, err);
}

/* A transformer alone says nothing about the size of pictures. */
static void take_size(wd_pipeline *start, const wd_pipeline *teacher)
{
    if (!start->bare && !*start->part[WD_COMPONENT_TRANSFORMER]) return;
    start->default_height = teacher->default_height;
    start->default_width = teacher->default_width;
}

static void say(const wd_train_setup *s)
{
    const wd_pipeline *start = &s->first;
    const bool knows_vae = start->has[WD_COMPONENT_VAE] && s->teacher.has[WD_COMPONENT_VAE];
    if (s->comm && s->comm->rank) return;
    wd_log(
        WD_LOG_INFO,
        "--init_student %s: channels of latents, patches and width of text are the teacher's%s%s",
        s->options.init_student,
        knows_vae ? ", and so are the numbers of its VAE"
                  : "; it has no VAE to compare with the teacher's",
        wd_student_expert(start) == WD_COMPONENT_TRANSFORMER_2
            ? "; of its two experts the student starts from the low-noise one"
            : "");
}

static wd_status open_start(wd_train_setup *s, bool plans, wd_err *err)
{
    const char *name = s->options.init_student;
    const bool is_preset = !wd_path_exists(name) && wd_preset_hub_id(name);
    if (is_preset && !plans) return refuse_preset(name, err);
    if (is_preset)
        WD_TRY(wd_preset_pipeline(&s->first, name, err));
    else if (open_model(&s->first, name, s->options.ignore_unknown_tensors, err))
        return wd_fail_in(err, "--init_student, which takes a folder, a Hub id or a file");
    WD_TRY(check(&s->first, &s->teacher, name, err));
    take_size(&s->first, &s->teacher);
    say(s);
    return WD_OK;
}

wd_status wd__student_open(wd_train_setup *s, bool plans, wd_err *err)
{
    const char *config = s->options.student_config, *first = s->options.init_student;
    if (!first) return wd_student_config_load(&s->student, config, &s->teacher, err);
    WD_TRY(open_start(s, plans, err));
    if (config && wd_student_config_load(&s->student, config, &s->first, err))
        return wd_fail_in(err, "in this message the teacher is the model of --init_student %s",
                          first);
    if (!config)
        s->student = (wd_student_config){.dit = s->first.dit,
                                         .image_height = s->first.default_height,
                                         .image_width = s->first.default_width,
                                         .text_tokens = s->first.trained_text_tokens};
    return WD_OK;
}
