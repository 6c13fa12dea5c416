/* Fuzz target: any bytes as a store of targets, its targets.json and its two files. What opens has
 * targets that can be checked, and those that pass are finite. */
#include "fuzzing.h"

#include "train/targets/chord.h"
#include "train/targets/source.h"
#include "train/targets/target_store_impl.h"

static void look(wd_target_store *s)
{
    wd_err err;
    const int64_t count = wd_target_store_count(s);
    const int64_t n = wd_store_state_count(wd_target_store_shape(s));
    for (int64_t i = 0; i < count && i < 64; i++) {
        wd__target_store_will_need(s, i);
        if (wd__target_store_check(s, i, &err) != WD_OK) continue;
        if (!wd__store_is_finite(wd__target_store_state(s, i), n) ||
            !wd__store_is_finite(wd__target_store_velocity(s, i), n))
            abort();
    }
    const wd_trajectory_options *t = wd_target_store_trajectory(s);
    if (t->slots > 64 || t->steps > 64) return; /* chords of many slots take long to count */
    const wd_source_options same = {.trajectory = *t, .stored = s};
    const int64_t usable = wd_source_stored_count(&same);
    for (int64_t i = 0; same.trajectory.student_steps && i < usable && i < 64; i++) {
        const wd_chord c = wd__chord_at(&same.trajectory, i);
        for (int64_t k = 0; k < c.length; k++)
            if (c.target[k] < 0 || c.target[k] >= count || c.twin[k] >= count) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    wd_target_store *s;
    const char *const name[] = {"store/targets.json", "store/targets-000000000000.safetensors",
                                "store/targets-000000000002.safetensors"};
    wd_fuzz_files(name, 3, data, bytes);
    if (wd_target_store_open(&s, wd_fuzz_path("store"), &err) != WD_OK) return 0;
    look(s);
    wd_target_store_close(s);
    return 0;
}
