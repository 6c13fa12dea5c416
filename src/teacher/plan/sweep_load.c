/* The moves of a schedule's entries: see teacher/plan/sweep_load.h. */
#include "teacher/plan/sweep_load.h"

typedef struct moves {
    wd_move *out;
    int count;
    const wd_sweep_setting *in;
} moves;

static void add(moves *m, wd_move move)
{
    if (move.bytes > 0) m->out[m->count++] = move;
}

/* Whether a device's memory is host memory. */
static bool is_host(const moves *m, int device)
{
    return device == WD_LINK_HOST ||
           (device != WD_LINK_LATENTS_DEVICES && wd_cluster_at(m->in->cluster, device)->reads_host);
}

/* Adds a copy between two devices of one rank, or between a device and host memory. */
static void copy(moves *m, int from, int to, double bytes, bool gathers)
{
    if (is_host(m, from)) from = WD_LINK_HOST;
    if (is_host(m, to)) to = WD_LINK_HOST;
    if (from == to) return;
    const wd_link_kind kind = from == WD_LINK_HOST ? WD_LINK_IN
                              : to == WD_LINK_HOST ? WD_LINK_OUT
                                                   : WD_LINK_ACROSS;
    add(m, (wd_move){kind, from, to, bytes, gathers});
}

/* The weights of a stage come to its device: from host memory its whole block, from disk the
 * tensors as they are in the file, which the device converts. Mapped ones are read again where the
 * page cache cannot keep them. */
static void bring_weights(moves *m, const wd_sweep_entry *e)
{
    const wd_home home = m->in->placement->place[e->expert][e->stage].home;
    const wd_stage_size *size = &m->in->size->stage[e->expert][e->stage];
    const int host = wd__cluster_host(m->in->cluster, e->device);
    const size_t sent = home == WD_HOME_DISK ? size->file : size->device;
    size_t read = home == WD_HOME_DISK ? size->file : 0;
    if (home == WD_HOME_DEVICE && m->in->cluster->uncached && is_host(m, e->device))
        read = wd_stage_mapped(size);
    add(m, (wd_move){WD_LINK_READ, host, WD_LINK_HOST, (double)read, false});
    if (home != WD_HOME_DEVICE) copy(m, WD_LINK_HOST, e->device, (double)sent, false);
}

/* From rank to rank. */
static void send(moves *m, const wd_sweep_entry *e, double bytes)
{
    const bool near =
        wd__cluster_host(m->in->cluster, e->device) == wd__cluster_host(m->in->cluster, e->to);
    add(m, (wd_move){near ? WD_LINK_NEAR : WD_LINK_FAR, wd_placed_rank(m->in->placement, e->device),
                     wd_placed_rank(m->in->placement, e->to), bytes, false});
}

/* Velocities go from the latents_device of a rank to the one of every other rank. */
static void gather(moves *m, int rank, int latents_device, double bytes)
{
    const int ranks = wd__cluster_ranks(m->in->cluster),
              near = wd_cluster_host_ranks(m->in->cluster);
    if (ranks == 1) return;
    copy(m, latents_device, WD_LINK_HOST, bytes, true);
    add(m, (wd_move){WD_LINK_NEAR, rank, WD_LINK_ALL, bytes * (near - 1), true});
    add(m, (wd_move){WD_LINK_FAR, rank, WD_LINK_ALL, bytes * (ranks - near), true});
    copy(m, WD_LINK_HOST, is_host(m, latents_device) ? latents_device : WD_LINK_LATENTS_DEVICES,
         bytes, true);
}

int wd__sweep_moves(wd_move out[WD_MOVES_MAX], const wd_sweep_setting *sweep,
                    const wd_sweep_entry *entry, double batches, double states)
{
    moves m = {.out = out, .in = sweep};
    const wd_placement *placement = sweep->placement;
    const wd_sweep_load *load = sweep->load;
    const int rank = wd_placed_rank(placement, entry->device);
    const int latents_device = rank * placement->devices + load->latents_device;
    const double activations = entry->stage == placement->stages - 1
                                   ? states * load->head_input_bytes_per_state
                                   : states * load->activation_bytes_per_state +
                                         batches * load->activation_bytes_per_batch;
    switch (entry->kind) {
    case WD_ENTRY_ACQUIRE:
        bring_weights(&m, entry);
        break;
    case WD_ENTRY_ENTER:
        copy(&m, latents_device, entry->device, states * load->latent_bytes, false);
        copy(&m, WD_LINK_HOST, entry->device, states * load->text_bytes, false);
        break;
    case WD_ENTRY_COPY:
        copy(&m, entry->device, entry->to, activations, false);
        break;
    case WD_ENTRY_SEND:
        copy(&m, entry->device, WD_LINK_HOST, activations, false);
        send(&m, entry, activations);
        break;
    case WD_ENTRY_RECEIVE:
        copy(&m, WD_LINK_HOST, entry->device, activations, false);
        break;
    case WD_ENTRY_LEAVE:
        copy(&m, entry->device, latents_device, states * load->latent_bytes, false);
        gather(&m, rank, latents_device, states * load->latent_bytes);
        break;
    default:
        break;
    }
    return m.count;
}
