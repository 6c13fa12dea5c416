/* Folder dev/sim. Simulated GPUs: the processor with a budget, a link and a speed.
 *
 * The structs and functions of simulated devices. Private to src/dev/sim.
 *
 * sim.c: device, pool, events; queue.c: a queue and its worker; line.c: the progress of a queue;
 * pace.c: the time that work takes. */
#ifndef WD_DEV_SIM_SIM_H
#define WD_DEV_SIM_SIM_H

#include "dev/cpu/cpu.h"
#include "dev/sim/line.h"
#include "dev/sim/pace.h"

typedef struct wd_sim_device {
    wd_device base;
    wd_cpu_kernels kernels;
    wd_sim_pace link, processor;
    double link_bytes_per_s, flops_per_s[WD_PRECISIONS]; /* 0: not limited */
    int64_t failing_launch;                              /* from 1; 0: none */
    _Atomic int64_t launches;                            /* so far, of all queues */
    _Atomic(int) failed_op;     /* the operation that failed; WD_OP_COUNT: none */
    struct wd_sim_device *next; /* in the list of all open devices of this process */
} wd_sim_device;

/* The open device whose pool has the address; NULL: it is host memory. */
wd_sim_device *wd__sim_owner(const void *address);

/* Whether the device has failed; its queues then skip their work. */
bool wd__sim_has_failed(const wd_sim_device *device);

/* queue.c: the queue functions of this kind of device. */
wd_status wd__sim_queue_open(wd_queue **out, wd_device *device, wd_err *err);
size_t wd__sim_queue_bytes(void); /* of the queue's struct without the line */
void wd__sim_queue_close(wd_queue *queue);
void wd__sim_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);
void wd__sim_queue_launch(wd_queue *queue, wd_op op, const void *args);
void wd__sim_queue_wait(wd_queue *queue);

wd_sim_line *wd__sim_queue_line(wd_queue *queue);

/* Makes later work of the queue wait until the first `count` pieces of `other` are done. Takes over
 * the caller's reference to it. */
void wd__sim_queue_wait_for(wd_queue *queue, wd_sim_line *other, int64_t count);

#endif
