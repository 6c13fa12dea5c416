/* Plans strided copies: see dev/strided_walk.h. */
#include "dev/strided_walk.h"

static int64_t magnitude(int64_t v)
{
    return v < 0 ? -v : v;
}

/* Sorts dimensions by the stride with which they write, the widest first. */
static void sort_by_stride(wd_stride *d, int count)
{
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && magnitude(d[j].to) > magnitude(d[j - 1].to); j--) {
            wd_stride swap = d[j];
            d[j] = d[j - 1];
            d[j - 1] = swap;
        }
}

static int merge_neighbours(wd_stride *d, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (kept && d[kept - 1].to == d[i].to * d[i].count &&
            d[kept - 1].from == d[i].from * d[i].count)
            d[kept - 1] = (wd_stride){d[kept - 1].count * d[i].count, d[i].to, d[i].from};
        else
            d[kept++] = d[i];
    }
    return kept;
}

bool wd_strided_walk_plan(wd_strided_walk *w, const wd_strided_copy_args *a)
{
    *w = (wd_strided_walk){.inner = {1, 1, 1}, .repeat_count = 1};
    for (int i = 0; i < a->ndim; i++) {
        wd_stride d = {a->dim[i], a->to_stride[i], a->from_stride[i]};
        if (d.count == 0) return false;
        if (d.count == 1) continue;
        if (d.to) {
            w->outer[w->outers++] = d;
        } else {
            w->repeat[w->repeats++] = d;
            w->repeat_count *= d.count;
        }
    }
    sort_by_stride(w->outer, w->outers);
    w->outers = merge_neighbours(w->outer, w->outers);
    if (w->outers) w->inner = w->outer[--w->outers];
    return true;
}
