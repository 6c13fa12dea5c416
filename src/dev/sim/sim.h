/* A simulated device from inside. Private to src/dev/sim.
 *
 * sim.c: device, pool, events; queue.c: a queue and its worker; line.c: how far a queue has come;
 * pace.c: what takes how long. */
#ifndef WD_DEV_SIM_SIM_H
#define WD_DEV_SIM_SIM_H

#include "dev/cpu/cpu.h"
#include "dev/sim/line.h"
#include "dev/sim/pace.h"

typedef struct wd_sim_device {
    wd_device base;
    wd_cpu_kernels kernels;
    wd_sim_pace link, processor; /* bytes, FLOPs */
    int64_t failing_launch;      /* from 1; 0: none */
    _Atomic int64_t launches;    /* so far, of all queues */
    _Atomic(int) failed_op;      /* that it failed at; WD_OP_COUNT: none */
    struct wd_sim_device *next;  /* of those that are open in this process */
} wd_sim_device;

/* The device whose pool the address lies in, of all that are open; NULL: it is host memory. */
wd_sim_device *wd_sim_owner(const void *address);

/* Whether it has failed: then its queues pass over their work. */
bool wd_sim_has_failed(const wd_sim_device *device);

/* queue.c: these functions of the kind. */
wd_status wd_sim_queue_open(wd_queue **out, wd_device *device, wd_err *err);
size_t wd_sim_queue_bytes(void); /* of its struct; beside it there is the line */
void wd_sim_queue_close(wd_queue *queue);
void wd_sim_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);
void wd_sim_queue_launch(wd_queue *queue, wd_op op, const void *args);
void wd_sim_queue_wait(wd_queue *queue);

wd_sim_line *wd_sim_queue_line(wd_queue *queue);

/* Later work of the queue waits until the first `count` of `other` are done. Takes over the
 * caller's hold on it. */
void wd_sim_queue_wait_for(wd_queue *queue, wd_sim_line *other, int64_t count);

#endif
