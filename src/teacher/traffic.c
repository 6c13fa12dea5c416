/* Bytes by link: see teacher/traffic.h. */
#include "teacher/traffic.h"

#include <math.h>
#include <stdlib.h>

#include "core/require.h"
#include "teacher/sweep_schedule.h"

enum { HOST = -1 }; /* its memory */

/* What is added to, and how often what is found in one sweep moves. */
typedef struct walk {
    wd_traffic *traffic;
    const wd_placement *placement;
    const wd_teacher_size *size;
    const wd_cluster *cluster;
    const wd_sweep_load *load;
    double times;
} walk;

int wd_traffic_room(const wd_teacher_size *size, const wd_cluster *cluster)
{
    const int ranks = wd_cluster_ranks(cluster);     /* read, in, out, near, far: of each */
    const int stages = size->experts * size->stages; /* its weights come, and what it computes on */
    return 5 * ranks + 5 * stages + 4 * size->experts;
}

static void add(const walk *w, wd_link_kind kind, int from, int to, double bytes, double gradients)
{
    wd_traffic *t = w->traffic;
    const int ranks = wd_cluster_ranks(w->cluster), near = wd_cluster_host_ranks(w->cluster);
    const int alike = kind == WD_LINK_READ ? ranks / near : ranks;
    if (!(bytes > 0)) return;
    int i = 0;
    while (i < t->links &&
           (t->link[i].kind != kind || t->link[i].from != from || t->link[i].to != to))
        i++;
    if (i == t->links) {
        WD_REQUIRE(t->links < t->room, "there is room for %d links", t->room);
        t->link[t->links++] = (wd_link){
            .kind = kind, .from = from, .to = to, .alike = w->placement->each ? alike : 1};
    }
    t->link[i].bytes += w->times * bytes;
    t->link[i].gradients += w->times * gradients;
}

/* ---- within a rank ---- */

/* Between devices, or host memory. */
static void move_of(const walk *w, int from, int to, double bytes, double gradients)
{
    if (from != HOST && wd_cluster_at(w->cluster, from)->reads_host) from = HOST;
    if (to != HOST && wd_cluster_at(w->cluster, to)->reads_host) to = HOST;
    if (from == to) return;
    add(w,
        from == HOST ? WD_LINK_IN
        : to == HOST ? WD_LINK_OUT
                     : WD_LINK_ACROSS,
        from, to, bytes, gradients);
}

static void move(const walk *w, int from, int to, double bytes)
{
    move_of(w, from, to, bytes, 0);
}

/* A stage's weights. */
static void bring(const walk *w, int expert, int stage)
{
    const wd_place *place = &w->placement->place[expert][stage];
    const wd_stage_size *size = &w->size->stage[expert][stage];
    const bool mapped = wd_cluster_at(w->cluster, place->device)->reads_host;
    size_t read = 0;
    if (place->home == WD_HOME_DISK)
        read = size->file;
    else if (w->cluster->uncached && mapped)
        read = wd_stage_mapped(size);
    add(w, WD_LINK_READ, wd_cluster_host(w->cluster, place->device), HOST, (double)read, 0);
    if (place->home != WD_HOME_DEVICE)
        move(w, HOST, place->device, (double)wd_stage_sent(size, place->home));
}

/* ---- between ranks ---- */

static int rank_of(const walk *w, int device)
{
    return wd_placed_rank(w->placement, device);
}

/* Where trajectories are, of a rank. */
static int home_of(const walk *w, int rank)
{
    return rank * w->placement->devices + w->load->home;
}

static bool are_near(const walk *w, int from, int to)
{
    return wd_cluster_host(w->cluster, from) == wd_cluster_host(w->cluster, to);
}

/* Velocities go from a rank to all others. Where each has a teacher, all of them do so. */
static void tell(const walk *w, int rank, double bytes)
{
    const int ranks = wd_cluster_ranks(w->cluster), near = wd_cluster_host_ranks(w->cluster);
    if (ranks == 1) return;
    move(w, home_of(w, rank), HOST, bytes);
    add(w, WD_LINK_NEAR, rank, WD_LINK_ALL, bytes * (near - 1), 0);
    add(w, WD_LINK_FAR, rank, WD_LINK_ALL, bytes * (ranks - near), 0);
    if (w->placement->each) move(w, HOST, home_of(w, rank), bytes * (ranks - 1));
    for (int r = 0; r < ranks && !w->placement->each; r++)
        if (r != rank) move(w, HOST, home_of(w, r), bytes);
}

/* ---- a sweep ---- */

/* What goes on of the micro-batches of an expert to a stage. */
static double activations_of(const walk *w, const wd_sweep_entry *e)
{
    const wd_sweep_load *load = w->load;
    const double states = load->batches[e->expert] * load->batch_targets[e->expert];
    return e->stage == w->placement->stages - 1
               ? states * load->hop_head_bytes
               : states * load->hop_bytes + load->batches_mean[e->expert] * load->hop_batch_bytes;
}

/* One micro-batch of an expert stands for all of them, which take the same way. */
static void add_entry(void *context, const wd_sweep_entry *e)
{
    const walk *w = context;
    const wd_sweep_load *load = w->load;
    const double states = load->batches[e->expert] * load->batch_targets[e->expert];
    const int rank = rank_of(w, e->device), home = home_of(w, rank);
    switch (e->kind) {
    case WD_ENTRY_ACQUIRE:
        bring(w, e->expert, e->stage);
        break;
    case WD_ENTRY_ENTER:
        move(w, home, e->device, states * load->latent_bytes);
        move(w, HOST, e->device, states * load->text_bytes);
        break;
    case WD_ENTRY_COPY:
        move(w, e->device, e->to, activations_of(w, e));
        break;
    case WD_ENTRY_SEND:
        move(w, e->device, HOST, activations_of(w, e));
        add(w, are_near(w, e->device, e->to) ? WD_LINK_NEAR : WD_LINK_FAR, rank, rank_of(w, e->to),
            activations_of(w, e), 0);
        break;
    case WD_ENTRY_RECEIVE:
        move(w, HOST, e->device, activations_of(w, e));
        break;
    case WD_ENTRY_LEAVE:
        move(w, e->device, home, states * load->latent_bytes);
        tell(w, rank, states * load->latent_bytes);
        break;
    default:
        break;
    }
}

void wd_traffic_sweeps(wd_traffic *traffic, const wd_placement *placement,
                       const wd_teacher_size *size, const wd_cluster *cluster,
                       const wd_sweep_load *load, double sweeps)
{
    walk w = {traffic, placement, size, cluster, load, sweeps};
    const wd_sweep_work work = {.batches = {load->batches[0] > 0, load->batches[1] > 0}};
    wd_sweep_schedule_each(placement, &work, add_entry, &w);
}

/* ---- the student ---- */

void wd_traffic_student(wd_traffic *traffic, const wd_placement *placement,
                        const wd_cluster *cluster, const wd_student_traffic *student)
{
    const walk w = {.traffic = traffic, .placement = placement, .cluster = cluster, .times = 1};
    const int ranks = placement->each ? 1 : wd_cluster_ranks(cluster);
    const double in = student->gradients_in, out = student->gradients_out;
    const double near = student->gradients_near, far = student->gradients_far;
    for (int r = 0; r < ranks; r++) {
        const int device = r * cluster->devices + student->device;
        move_of(&w, HOST, device, student->in + in, in);
        move_of(&w, device, HOST, student->out + out, out);
        add(&w, WD_LINK_NEAR, r, WD_LINK_ALL, near, near);
        add(&w, WD_LINK_FAR, r, WD_LINK_ALL, far, far);
    }
}

/* ---- order, sums ---- */

static int compare(const void *a, const void *b)
{
    const wd_link *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

void wd_traffic_sort(wd_traffic *traffic)
{
    qsort(traffic->link, (size_t)traffic->links, sizeof *traffic->link, compare);
}

double wd_traffic_bytes(const wd_traffic *traffic, wd_link_kind kind)
{
    double bytes = 0;
    for (int i = 0; i < traffic->links; i++)
        if (traffic->link[i].kind == kind) bytes += traffic->link[i].alike * traffic->link[i].bytes;
    return bytes;
}

double wd_traffic_sent(const wd_traffic *traffic)
{
    double sent[WD_CLUSTER_DEVICES_MAX] = {0}, most = 0;
    for (int i = 0; i < traffic->links; i++) {
        const wd_link *link = &traffic->link[i];
        if (link->kind != WD_LINK_NEAR && link->kind != WD_LINK_FAR) continue;
        most = fmax(most, sent[link->from] += link->bytes);
    }
    return most;
}
