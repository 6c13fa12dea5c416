/* The load of a sweep: how many micro-batches it has and what they weigh, and from that the bytes
 * that each entry of its schedule moves.
 *
 * The timeline (teacher/plan/timeline.h) plays these moves one after another, and traffic
 * (teacher/plan/traffic.h) adds them up link by link. Everything here is pure. */
#ifndef WD_TEACHER_PLAN_SWEEP_LOAD_H
#define WD_TEACHER_PLAN_SWEEP_LOAD_H

#include "teacher/plan/placement.h"
#include "teacher/plan/sweep_schedule.h"

/* The bytes that move for the student of one rank in a step. */
typedef struct wd_student_traffic {
    int device;                           /* of every rank */
    double in, out;                       /* over the device's link, without gradients */
    double gradients_in, gradients_out;   /* over the device's link */
    double gradients_near, gradients_far; /* sent to other ranks */
} wd_student_traffic;

/* The work of a step of the student, on the device of every rank where trajectories are. */
typedef struct wd_student_load {
    double targets; /* targets that a step of all ranks needs; 0: no student trains */
    double ahead;   /* a sweep may begin this many steps before the step that first needs one of
                     * its targets; at most 2 */
    double compute_seconds;
    double after_seconds;   /* from the step's beginning until its copies and messages begin */
    double link_seconds;    /* of copies over the device's link */
    double network_seconds; /* of messages between ranks */
    double reduce_seconds;  /* during which gradients are exchanged */
    wd_student_traffic traffic;
} wd_student_load;

typedef struct wd_sweep_load {
    int batches[WD_PLACED_EXPERTS_MAX];          /* micro-batches of each expert */
    double batch_targets[WD_PLACED_EXPERTS_MAX]; /* states of a micro-batch, on average */
    double batches_mean[WD_PLACED_EXPERTS_MAX];  /* micro-batches of each expert, averaged over the
                                                  * sweeps that this load stands for */
    int sweeps_apart; /* from one sweep that a state is in to its next; 0 is 1 */
    /* Bytes of the activations that go from device to device: for each state, and besides for each
     * micro-batch, whose states share the unconditional text; a head gets fewer for each state. */
    double activation_bytes_per_state, activation_bytes_per_batch, head_input_bytes_per_state;
    double text_bytes;   /* of each state, from host memory to the device of the embedding */
    double latent_bytes; /* of each state's latents, and of its velocity */
    int latents_device;  /* the device of every rank where trajectories are */
    double window;       /* targets of all ranks from one sweep to the next */
    wd_student_load student;
} wd_sweep_load;

/* ---- moves ---- */

typedef enum wd_link_kind {
    WD_LINK_READ,   /* from the disk of host `from` to its memory */
    WD_LINK_IN,     /* from host memory to device `to` */
    WD_LINK_OUT,    /* from device `from` to host memory */
    WD_LINK_ACROSS, /* from device `from` to device `to` of the same rank */
    WD_LINK_NEAR,   /* from rank `from` to rank `to` of its host, or to all others there */
    WD_LINK_FAR,    /* from rank `from` to rank `to` of another host, or to all ranks of others */
    WD_LINKS
} wd_link_kind;

enum {
    WD_LINK_HOST = -1,            /* in place of a device: host memory */
    WD_LINK_ALL = -1,             /* in place of a rank: all other ranks */
    WD_LINK_LATENTS_DEVICES = -2, /* in place of a device: the latents_device of every other rank */
    WD_MOVES_MAX = 5
};

typedef struct wd_move {
    wd_link_kind kind;
    int from, to;
    double bytes;
    bool gathers; /* the move brings velocities to other ranks; the micro-batch goes on meanwhile */
} wd_move;

/* All that the moves of a sweep depend on; borrowed. */
typedef struct wd_sweep_setting {
    const wd_placement *placement;
    const wd_teacher_size *size;
    const wd_cluster *cluster;
    const wd_sweep_load *load;
} wd_sweep_setting;

/* out[0 ... count - 1] = the moves of an entry, in order; returns their count. An entry of a
 * micro-batch may stand for `batches` of them, which have `states` states together: all
 * micro-batches of an expert take the same way. A processor's memory is host memory: bytes that
 * stay there make no move, and neither do zero bytes. */
int wd__sweep_moves(wd_move out[WD_MOVES_MAX], const wd_sweep_setting *sweep,
                    const wd_sweep_entry *entry, double batches, double states);

#endif
