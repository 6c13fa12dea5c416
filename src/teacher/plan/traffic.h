/* Traffic: the bytes that move in a step, link by link: sums over the moves of a schedule's entries
 * (teacher/plan/sweep_load.h). Pure.
 *
 * A link is known by its kind and its ends. Where every rank has a teacher, the links of one rank
 * stand for those of all ranks (`alike`). */
#ifndef WD_TEACHER_PLAN_TRAFFIC_H
#define WD_TEACHER_PLAN_TRAFFIC_H

#include "teacher/plan/sweep_load.h"

typedef struct wd_link {
    wd_link_kind kind;
    int from, to;
    int alike;        /* how many links this one stands for: itself, and those of other ranks or
                       * hosts, which move as much each */
    double bytes;     /* that one of them moves */
    double gradients; /* the part of `bytes` that are the student's gradients, or their sums */
} wd_link;

typedef struct wd_traffic {
    wd_link *link; /* [room] */
    int links, room;
} wd_traffic;

/* The most links that any placement has. */
int wd__traffic_room(const wd_teacher_size *size, const wd_cluster *cluster);

/* Adds the bytes that move in `sweeps` sweeps: of one rank where each has a teacher, else of all
 * ranks together. Rates do not matter. */
void wd__traffic_sweeps(wd_traffic *traffic, const wd_sweep_setting *sweep, double sweeps);

/* Adds the bytes that move for the student in a step, for all ranks. */
void wd__traffic_student(wd_traffic *traffic, const wd_placement *placement,
                         const wd_cluster *cluster, const wd_student_traffic *student);

/* Sorts links by kind, then by where they begin, then by where they end. */
void wd__traffic_sort(wd_traffic *traffic);

/* The bytes over all links of a kind. */
double wd__traffic_bytes(const wd_traffic *traffic, wd_link_kind kind);

/* The bytes that the rank that sends most sends to other ranks. */
double wd__traffic_sent(const wd_traffic *traffic);

#endif
