/* See api/memory_changes.h. */
#include "api/memory_changes.h"

#include <inttypes.h>

#include "core/append.h"

enum { HALVINGS_MAX = 4, SMALL_REPLAY = 1024 };
enum { SETS = 8 }; /* combinations of the first three flags */

bool wd_memory_change_at(wd_memory_change *out, int n)
{
    const int halvings = n / SETS, worse = halvings / (HALVINGS_MAX + 1);
    *out = (wd_memory_change){.bf16_teacher = n & 1,
                              .checkpointing = n & 2,
                              .bf16_student = n & 4,
                              .small_replay = worse > 0,
                              .off_policy = worse > 1,
                              .halvings = halvings % (HALVINGS_MAX + 1)};
    return worse <= 2;
}

bool wd_memory_change_apply(wd_train_options *o, wd_machine_options *m, const wd_memory_change *c)
{
    if (c->bf16_teacher) {
        if (m->teacher_dtype == WD_BF16) return false;
        o->teacher_dtype = "bfloat16";
        m->teacher_dtype = WD_BF16;
    }
    if (c->bf16_student) {
        if (m->student_dtype == WD_BF16) return false;
        o->mixed_precision = "bf16";
        m->student_dtype = WD_BF16;
    }
    if (c->checkpointing) {
        if (m->checkpointing) return false;
        o->gradient_checkpointing = m->checkpointing = true;
    }
    if (c->small_replay) {
        if (m->replay <= SMALL_REPLAY && !c->off_policy) return false;
        if (m->replay > SMALL_REPLAY) o->target_replay = m->replay = SMALL_REPLAY;
    }
    if (c->off_policy) {
        if (!(m->trajectory.on_policy_share > 0)) return false;
        o->on_policy_share = m->trajectory.on_policy_share = 0;
    }
    for (int i = 0; i < c->halvings; i++) {
        if (m->batch % 2) return false;
        o->batch_size = m->batch /= 2;
        o->gradient_accumulation_steps = m->accumulation *= 2;
    }
    return true;
}

const char *wd_memory_change_text(char out[WD_MEMORY_CHANGE_TEXT], const wd_memory_change *c,
                                  const wd_train_options *o)
{
    const size_t bytes = WD_MEMORY_CHANGE_TEXT;
    size_t n = 0;
    *out = 0;
    if (c->bf16_teacher) n = wd_append(out, bytes, n, " --teacher_dtype bfloat16");
    if (c->bf16_student) n = wd_append(out, bytes, n, " --mixed_precision bf16");
    if (c->checkpointing) n = wd_append(out, bytes, n, " --gradient_checkpointing");
    if (c->halvings)
        n = wd_append(out, bytes, n,
                      " --batch_size %" PRId64 " --gradient_accumulation_steps %" PRId64,
                      o->batch_size, o->gradient_accumulation_steps);
    if (c->small_replay)
        n = wd_append(out, bytes, n, " --target_replay %" PRId64, o->target_replay);
    if (c->off_policy) n = wd_append(out, bytes, n, " --on_policy_share 0");
    return n ? out + 1 : out;
}
