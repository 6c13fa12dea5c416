/* The prompts of a run: see api/setup/train_prompts.h. */
#include "api/setup/train_prompts.h"

#include <string.h>

#include "core/memory.h"

enum { SAMPLES_DEFAULT = 8 };

/* Chooses the prompts of the sheets: given, from a file, or the first of the data. If
 * --save_samples is auto, they count whether sheets are drawn or not, since the rows of text, and
 * so the student's bits, must not depend on the speed of a machine. */
static wd_status choose_samples(wd_train_setup *s, const char *const **list, wd_err *err)
{
    const wd_texts *given = &s->options.sample_prompts;
    s->samples = 0;
    if (!*s->teacher.path) return WD_OK; /* a preset, which has no VAE to decode pictures */
    if (!strcmp(s->options.save_samples, "false")) return WD_OK;
    if (given->count == 1 && wd_prompts_is_file(given->item[0])) {
        WD_TRY(wd_prompts_open(&s->sample_file, given->item[0], err));
        *list = (const char *const *)s->sample_file.text;
        s->samples =
            s->sample_file.count < SAMPLES_DEFAULT ? s->sample_file.count : SAMPLES_DEFAULT;
    } else if (given->count) {
        *list = given->item;
        s->samples = given->count;
    } else if (s->data.count) {
        *list = (const char *const *)s->data.text;
        s->samples = s->data.count < SAMPLES_DEFAULT ? s->data.count : SAMPLES_DEFAULT;
    }
    return WD_OK;
}

wd_status wd_train_prompts_read(wd_train_setup *s, wd_err *err)
{
    const char *const *samples = NULL;
    const bool given = s->options.data_path;
    if (given) WD_TRY(wd_prompts_open(&s->data, s->options.data_path, err));
    WD_TRY(choose_samples(s, &samples, err));
    if (!given && !samples && *s->teacher.path && strcmp(s->options.save_samples, "false"))
        s->samples = SAMPLES_DEFAULT;
    const int64_t count = s->data.count + s->samples;
    WD_TRY(wd_alloc((void **)&s->prompt, (size_t)(count ? count : 1), sizeof *s->prompt, "prompts",
                    err));
    for (int64_t i = 0; i < s->data.count; i++) s->prompt[i] = s->data.text[i];
    for (int64_t i = 0; i < s->samples; i++)
        s->prompt[s->data.count + i] = samples ? samples[i] : "";
    if (!count) s->prompt[0] = "";
    return WD_OK;
}
