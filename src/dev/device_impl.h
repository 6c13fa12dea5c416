/* The interface that a kind of device implements: a table of functions, and structs whose first
 * member is the common part below. Private to src/dev.
 *
 * device.c counts blocks, peaks and totals in the same way for every kind; a kind only copies bytes
 * and runs kernels. */
#ifndef WD_DEV_DEVICE_IMPL_H
#define WD_DEV_DEVICE_IMPL_H

#include <pthread.h>

#include "dev/ops.h"
#include "dev/peers.h"

/* What a kind of device that can have peers fills in: see dev/peers.h. */
typedef struct wd_peers_kind {
    wd_status (*offer)(wd_peers_offer *out, wd_device *device, wd_err *err);
    wd_status (*make_key)(unsigned char key[WD_PEERS_KEY_BYTES], wd_device *device, wd_err *err);
    wd_status (*open)(wd_peers **out, wd_device *device, const wd_peers_options *options,
                      wd_err *err);
    void (*exchange)(wd_peers *peers, wd_queue *queue, const wd_peer_move *moves, int count);
    void (*close)(wd_peers *peers);
} wd_peers_kind;

typedef struct wd_device_kind {
    void (*close)(wd_device *device);
    /* `bytes` > 0. */
    wd_status (*alloc)(void **out, wd_device *device, size_t bytes, wd_err *err);
    void (*free)(wd_device *device, void *block, size_t bytes);
    wd_status (*queue_open)(wd_queue **out, wd_device *device, wd_err *err);
    void (*queue_close)(wd_queue *queue);
    wd_status (*reserve)(wd_queue *queue, size_t bytes, wd_err *err);
    void (*copy)(wd_queue *queue, void *to, const void *from, size_t bytes);
    /* wd_queue_copy_and_wait; NULL: `copy`, which accepts any host memory, then `wait`. */
    void (*copy_and_wait)(wd_queue *queue, void *to, const void *from, size_t bytes);
    void (*launch)(wd_queue *queue, wd_op op, const void *args);
    void (*wait)(wd_queue *queue);
    wd_status (*event_open)(wd_event **out, wd_device *device, wd_err *err);
    void (*event_close)(wd_event *event);
    void (*event_record)(wd_event *event, wd_queue *queue);
    void (*event_wait_on)(wd_queue *queue, wd_event *event);
    void (*event_wait)(wd_event *event);
    bool (*event_is_done)(wd_event *event);
    /* The workspace that a launch would need. */
    size_t (*workspace)(const wd_device *device, wd_op op, const void *args);
    /* True if the device can run the operation with these shapes and dtypes. NULL: it can run
     * every operation. */
    bool (*can)(const wd_device *device, wd_op op, const void *args);
    /* Makes what launches of this shape need, if that is not there yet; NULL: nothing is made. */
    wd_status (*prepare)(wd_device *device, wd_op op, const void *args, wd_err *err);
    /* wd_device_fault; NULL: it never fails. */
    wd_status (*fault)(wd_device *device, wd_err *err);
    /* wd_device_measure_beside and wd_device_reserve_beside. Both NULL: there is nothing beside the
     * pool. */
    wd_status (*measure_beside)(size_t *out, wd_device *device, wd_err *err);
    void (*reserve_beside)(wd_device *device, size_t bytes);
    /* Pinned host memory, zeroed, 64-byte aligned; `bytes` > 0. Both NULL: ordinary memory is used.
     * dev/pinned.c counts it (core/memory.h). */
    wd_status (*host_alloc)(void **out, wd_device *device, size_t bytes, wd_err *err);
    void (*host_free)(wd_device *device, void *block, size_t bytes);
    /* Pins and unpins existing memory. Both NULL: there is nothing to do. */
    wd_status (*host_register)(wd_device *device, void *address, size_t bytes, wd_err *err);
    void (*host_unregister)(wd_device *device, void *address, size_t bytes);
    /* True if the address is in the pool of an open device of this kind. device.c calls this
     * function if `checks_copies` is set. */
    bool (*owns)(wd_device *device, const void *address);
    const wd_peers_kind *peers; /* NULL: this kind cannot have peers */
} wd_device_kind;

typedef struct wd_block {
    void *address;
    size_t bytes;
    const char *what;
} wd_block;

/* All blocks of one name. */
typedef struct wd_block_sum {
    const char *what;
    size_t bytes, peak;
} wd_block_sum;

enum { WD_BLOCK_SUMS_MAX = 48 };

struct wd_device {
    const wd_device_kind *kind;
    char name[96];
    wd_traits traits; /* the kind fills it when it opens; granule is 1 by default */
    bool is_dry;
    bool beside_is_estimate;   /* whether traits.bytes_beside is an estimate */
    wd_device *pool_with;      /* device with which blocks are registered; NULL: none */
    bool checks_copies;        /* host memory of copies must be pinned */
    size_t event_bytes;        /* of an event's struct; a kind may set more than the common part */
    size_t queue_bytes;        /* of a queue's struct; a kind may set more than the common part */
    size_t queue_beside_bytes; /* of a second block that a queue has, if any */
    pthread_mutex_t lock;      /* of everything below */
    wd_block *block;           /* the allocated blocks */
    size_t blocks, blocks_max;
    wd_block_sum sum[WD_BLOCK_SUMS_MAX]; /* the last one counts all further names */
    int sums;
    _Atomic size_t bytes; /* any thread may read it, for reports */
    size_t bytes_peak;
    size_t bytes_max; /* SIZE_MAX: the system's limit */
    int64_t allocs;
};

struct wd_queue {
    wd_device *device;
    void *workspace; /* of the device's pool; freed by the kind's queue_close */
    size_t workspace_bytes;
    wd_queue_totals total;
};

struct wd_event {
    wd_device *device;
};

struct wd_peers {
    const wd_peers_kind *kind;
    wd_device *device; /* borrowed; NULL: peers of a plan */
    int member, members;
};

/* Allocates a device of `bytes` bytes, whose first member is a wd_device, and fills the common
 * part; undone by wd_device_discard, which a kind calls last in its close. */
wd_status wd_device_create(void *out, size_t bytes, const wd_device_kind *kind, wd_err *err);
void wd_device_discard(wd_device *device);

/* `bytes` rounded up to granules; SIZE_MAX: overflow. */
size_t wd__device_in_granules(const wd_device *device, size_t bytes);

/* Whether the address is in a block of this device. */
bool wd_device_has(wd_device *device, const void *address);

/* Allocate queues and events (of the device's event_bytes); wd_free frees them. */
wd_status wd_queue_create(void *out, size_t bytes, wd_device *device, wd_err *err);
wd_status wd_event_create(void *out, wd_device *device, wd_err *err);

/* `reserve` of kinds whose queues have a workspace: waits for the queue, then replaces the
 * workspace by a larger one. */
wd_status wd_queue_grow_workspace(wd_queue *queue, size_t bytes, wd_err *err);

/* Makes sure that a launch has its workspace. A launch cannot fail, so the process ends if there is
 * no memory. To get an error instead, reserve the workspace beforehand. */
void wd_queue_need_workspace(wd_queue *queue, wd_op op, const void *args);

/* Bytes of an operation's argument struct. */
size_t wd_op_args_bytes(wd_op op);

#endif
