/* Bytes by link: see teacher/plan/traffic.h. */
#include "teacher/plan/traffic.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"

/* A sum over the moves of a sweep, each of which counts `times` times. */
typedef struct sum {
    wd_traffic *traffic;
    wd_sweep_setting sweep;
    double times;
} sum;

int wd__traffic_room(const wd_teacher_size *size, const wd_cluster *cluster)
{
    const int ranks = wd__cluster_ranks(cluster);    /* read, in, out, near, far: of each */
    const int stages = size->experts * size->stages; /* its weights come, and what it computes on */
    return 5 * ranks + 5 * stages + 4 * size->experts;
}

static void add(const sum *s, const wd_move *move, double gradients)
{
    wd_traffic *t = s->traffic;
    const wd_cluster *cluster = s->sweep.cluster;
    const int ranks = wd__cluster_ranks(cluster), near = wd_cluster_host_ranks(cluster);
    const int alike = move->kind == WD_LINK_READ ? ranks / near : ranks;
    if (!(move->bytes > 0)) return;
    int i = 0;
    while (i < t->links && (t->link[i].kind != move->kind || t->link[i].from != move->from ||
                            t->link[i].to != move->to))
        i++;
    if (i == t->links) {
        WD_REQUIRE(t->links < t->room, "there is room for %d links", t->room);
        t->link[t->links++] = (wd_link){.kind = move->kind,
                                        .from = move->from,
                                        .to = move->to,
                                        .alike = s->sweep.placement->each ? alike : 1};
    }
    t->link[i].bytes += s->times * move->bytes;
    t->link[i].gradients += s->times * gradients;
}

/* ---- a sweep ---- */

/* Velocities of a rank come to the latents_device of every other rank. Where each rank has a
 * teacher, one rank stands for all, and gets what the others send. */
static void add_gathered(const sum *s, wd_move move, int rank)
{
    const wd_placement *p = s->sweep.placement;
    const int ranks = wd__cluster_ranks(s->sweep.cluster);
    if (p->each) move.bytes *= ranks - 1;
    for (int r = p->each ? rank : 0; r < (p->each ? rank + 1 : ranks); r++) {
        move.to = r * p->devices + s->sweep.load->latents_device;
        if (p->each || r != rank) add(s, &move, 0);
    }
}

/* One micro-batch of an expert stands for all of them, which take the same way. */
static void add_entry(void *context, const wd_sweep_entry *e)
{
    const sum *s = context;
    const wd_sweep_load *load = s->sweep.load;
    const double states = load->batches[e->expert] * load->batch_targets[e->expert];
    wd_move move[WD_MOVES_MAX];
    const int moves = wd__sweep_moves(move, &s->sweep, e, load->batches_mean[e->expert], states);
    for (int i = 0; i < moves; i++)
        if (move[i].to == WD_LINK_LATENTS_DEVICES)
            add_gathered(s, move[i], wd_placed_rank(s->sweep.placement, e->device));
        else
            add(s, &move[i], 0);
}

void wd__traffic_sweeps(wd_traffic *traffic, const wd_sweep_setting *sweep, double sweeps)
{
    sum s = {traffic, *sweep, sweeps};
    const int *batches = sweep->load->batches;
    const wd_sweep_work work = {.batches = {batches[0] > 0, batches[1] > 0}};
    wd__sweep_schedule_each(sweep->placement, &work, add_entry, &s);
}

/* ---- the student ---- */

void wd__traffic_student(wd_traffic *traffic, const wd_placement *placement,
                         const wd_cluster *cluster, const wd_student_traffic *student)
{
    const sum s = {traffic, {.placement = placement, .cluster = cluster}, 1};
    const int ranks = placement->each ? 1 : wd__cluster_ranks(cluster);
    const bool copies = !wd_cluster_at(cluster, student->device)->reads_host;
    const double in = student->gradients_in, out = student->gradients_out;
    const double near = student->gradients_near, far = student->gradients_far;
    for (int r = 0; r < ranks; r++) {
        const int device = r * cluster->devices + student->device;
        if (copies) {
            add(&s, &(wd_move){WD_LINK_IN, WD_LINK_HOST, device, student->in + in, false}, in);
            add(&s, &(wd_move){WD_LINK_OUT, device, WD_LINK_HOST, student->out + out, false}, out);
        }
        add(&s, &(wd_move){WD_LINK_NEAR, r, WD_LINK_ALL, near, false}, near);
        add(&s, &(wd_move){WD_LINK_FAR, r, WD_LINK_ALL, far, false}, far);
    }
}

/* ---- order, sums ---- */

static int compare(const void *a, const void *b)
{
    const wd_link *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

void wd__traffic_sort(wd_traffic *traffic)
{
    qsort(traffic->link, (size_t)traffic->links, sizeof *traffic->link, compare);
}

double wd__traffic_bytes(const wd_traffic *traffic, wd_link_kind kind)
{
    double bytes = 0;
    for (int i = 0; i < traffic->links; i++)
        if (traffic->link[i].kind == kind) bytes += traffic->link[i].alike * traffic->link[i].bytes;
    return bytes;
}

double wd__traffic_sent(const wd_traffic *traffic)
{
    double sent[WD_CLUSTER_DEVICES_MAX] = {0}, most = 0;
    for (int i = 0; i < traffic->links; i++) {
        const wd_link *link = &traffic->link[i];
        if (link->kind != WD_LINK_NEAR && link->kind != WD_LINK_FAR) continue;
        most = fmax(most, sent[link->from] += link->bytes);
    }
    return most;
}
