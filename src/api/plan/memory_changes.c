/* See api/plan/memory_changes.h. */
#include "api/plan/memory_changes.h"

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
