/* Phases of a run: see train/loop/phases.h. */
#include "train/loop/phases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The default shares of velocities and chords: see docs/recipe.md. */
static const double default_share[WD_PHASES_MAX] = {0.6, 0.4};

static const wd_recipe *const recipes[WD_PHASES_MAX] = {&wd_recipe_velocity, &wd_recipe_chord};

static wd_status refuse(const char *text, wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--recipe: expected velocity, chord, or velocity,chord, each with a share of "
                   "the run if wanted, such as velocity:0.6,chord:0.4; found %.60s",
                   text);
}

/* Reads "chord" or "chord:0.4", which is followed by the text's end or a comma; moves *at behind
 * it. *share < 0: it is not given. Returns the recipe's number; -1: it is none. */
static int parse_one(double *share, const char **at)
{
    for (int i = 0; i < WD_PHASES_MAX; i++) {
        const size_t n = strlen(recipes[i]->name);
        if (strncmp(*at, recipes[i]->name, n)) continue;
        char *end = (char *)*at + n;
        *share = -1;
        if (*end == ':') {
            const char *number = end + 1;
            *share = strtod(number, &end);
            if (end == number || !isfinite(*share) || *share <= 0) return -1;
        }
        *at = end;
        return *end == ',' || !*end ? i : -1;
    }
    return -1;
}

/* Makes the shares add up to 1; false: some are given, and some are not. */
static bool make_shares_whole(wd_phases *p, const int *number)
{
    double sum = 0;
    const bool given = p->phase[0].share > 0;
    for (int i = 0; i < p->count; i++) {
        wd_phase *phase = &p->phase[i];
        if ((phase->share > 0) != given) return false;
        if (!given) phase->share = default_share[number[i]];
        sum += phase->share;
    }
    for (int i = 0; i < p->count; i++) p->phase[i].share /= sum;
    return isfinite(sum);
}

wd_status wd_phases_parse(wd_phases *out, const char *text, wd_err *err)
{
    const char *at = text;
    int number[WD_PHASES_MAX];
    wd_phases p = {0};
    for (;;) {
        double share;
        const int recipe = p.count < WD_PHASES_MAX ? parse_one(&share, &at) : -1;
        /* velocities are learnt before chords, and nothing twice */
        if (recipe < 0 || (p.count && recipe <= number[p.count - 1])) return refuse(text, err);
        number[p.count] = recipe;
        p.phase[p.count++] = (wd_phase){.recipe = recipes[recipe], .share = share};
        if (!*at) break;
        at++;
    }
    if (!make_shares_whole(&p, number)) return refuse(text, err);
    *out = p;
    return WD_OK;
}

/* The share of the run that is over when the phase ends. */
static double share_until(const wd_phases *phases, int phase)
{
    double sum = 0;
    if (phase >= phases->count - 1) return 1;
    for (int i = 0; i <= phase; i++) sum += phases->phase[i].share;
    return sum;
}

int64_t wd_phase_end_step(const wd_phases *phases, int phase, int64_t steps)
{
    const int64_t after = phases->count - 1 - phase; /* phases that follow */
    if (!steps || after <= 0) return steps;
    const int64_t end = (int64_t)((double)steps * share_until(phases, phase));
    const int64_t first = phase + 1, last = steps - after;
    if (end > last) return last > first ? last : first;
    return end > first ? end : first;
}

double wd__phase_end_seconds(const wd_phases *phases, int phase, double seconds)
{
    return seconds * share_until(phases, phase);
}
