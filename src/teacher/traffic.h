/* Traffic: what moves in a step, link by link, in bytes. As a timeline says when it moves, from the
 * same placement and the same work of a sweep; pure, too.
 *
 * Links are told apart by where they begin and end. Host memory is one place on each host, and a
 * processor's: what it has goes over no link. Where every rank has a teacher one rank's links stand
 * for those of all: `alike`. */
#ifndef WD_TEACHER_TRAFFIC_H
#define WD_TEACHER_TRAFFIC_H

#include "teacher/sweep_load.h"

typedef struct wd_link {
    wd_link_kind kind;
    int from, to;
    int alike;        /* links that move as much each: this, and those of other ranks or hosts */
    double bytes;     /* of one of them */
    double gradients; /* of these: the student's, and what comes of them */
} wd_link;

/* `links` of room for `room`. */
typedef struct wd_traffic {
    wd_link *link;
    int links, room;
} wd_traffic;

/* The most links that any placement has. */
int wd_traffic_room(const wd_teacher_size *size, const wd_cluster *cluster);

/* Adds what moves in `sweeps` sweeps of a rank, where each has a teacher, else of all ranks
 * together. The rates of the cluster do not matter. */
void wd_traffic_sweeps(wd_traffic *traffic, const wd_sweep_setting *sweep, double sweeps);

/* What moves for the student of one rank in a step, in bytes. */
typedef struct wd_student_traffic {
    int device;     /* of every rank */
    double in, out; /* of its device, gradients apart */
    double gradients_in, gradients_out;
    double gradients_near, gradients_far; /* sent to other ranks */
} wd_student_traffic;

/* Adds it, for all ranks. */
void wd_traffic_student(wd_traffic *traffic, const wd_placement *placement,
                        const wd_cluster *cluster, const wd_student_traffic *student);

/* By kind, then by where they begin, then by where they end. */
void wd_traffic_sort(wd_traffic *traffic);

/* Over all links of a kind. */
double wd_traffic_bytes(const wd_traffic *traffic, wd_link_kind kind);

/* What the rank sends to others that sends most. */
double wd_traffic_sent(const wd_traffic *traffic);

#endif
