/* Peers: devices of several ranks that exchange memory of their pools without a host in between.
 *
 * Each rank has one of them. One rank makes a key, which the others are told by other means
 * (dist/rank_peers.h); then all open theirs, together. After that an exchange is put on a queue
 * like a launch: it moves what earlier work of the queue has made, and later work finds what came.
 *
 * NVIDIA GPUs do it by NCCL (dev/cuda/peers.c); no other device can. */
#ifndef WD_DEV_PEERS_H
#define WD_DEV_PEERS_H

#include "dev/device.h"

enum { WD_PEERS_KEY_BYTES = 128, WD_PEERS_TEXT = 64 };

typedef struct wd_peers wd_peers;

/* What a device that can be a peer says of itself. */
typedef struct wd_peers_offer {
    char library[WD_PEERS_TEXT];  /* "NCCL 2.28.9": peers have the same */
    char hardware[WD_PEERS_TEXT]; /* which one of its host it is: no two peers are the same one */
} wd_peers_offer;

/* Whether devices of this kind can be peers at all. */
bool wd_peers_may(const wd_device *device);

/* WD_UNSUPPORTED: the device cannot be a peer; the message says why. */
wd_status wd_peers_offer_of(wd_peers_offer *out, wd_device *device, wd_err *err);

/* A key for one group of peers, of which one member makes it. The device has made an offer. */
wd_status wd_peers_make_key(unsigned char key[WD_PEERS_KEY_BYTES], wd_device *device, wd_err *err);

/* A thread of the peers' calls it, once, when they or their device have failed. */
typedef void wd_peers_fault_fn(void *context, const wd_err *fault);

typedef struct wd_peers_options {
    unsigned char key[WD_PEERS_KEY_BYTES];
    int member, members;
    double open_s;               /* until all members are connected; 0: 120 seconds */
    wd_peers_fault_fn *on_fault; /* NULL: nobody is told; wd_device_fault says it to who asks */
    void *context;
} wd_peers_options;

/* Opens this member, with all others: each device has made an offer, the offers' libraries are the
 * same, and no two are the same hardware of one host. Before it returns every member has exchanged
 * something with every other one, so that the library has the memory which it will have: this is
 * taken from the most that the device's pool may have (wd_device_bytes_max). So it comes before
 * anybody asks for that. WD_DEVICE_FAULT: the library has failed, or a member did not come within
 * open_s; what it has is left to the end of the process, which should be soon. */
wd_status wd_peers_open(wd_peers **out, wd_device *device, const wd_peers_options *options,
                        wd_err *err);

/* For plans of ranks that are not there: exchanges nothing, on queues of dry devices. */
wd_status wd_peers_open_dry(wd_peers **out, wd_err *err);

/* What goes to another member or comes from it, at addresses in pools. One of both is NULL. */
typedef struct wd_peer_move {
    int peer;
    const void *from;
    void *to;
    size_t bytes; /* 0: nothing is moved */
} wd_peer_move;

/* Puts all these moves on the queue as one. Of two members the n-th move to the other one belongs
 * to the other's n-th move from there, and has as many bytes; all members' exchanges come in the
 * same order. A failure becomes the device's fault. On a queue of a dry device it does nothing. */
void wd_peers_exchange(wd_peers *peers, wd_queue *queue, const wd_peer_move *moves, int count);

/* All members close theirs at the same time, when no exchange is under way. NULL is allowed. */
void wd_peers_close(wd_peers *peers);

#endif
