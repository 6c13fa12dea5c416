/* Peers: devices of several ranks that exchange memory of their pools without a host in between.
 *
 * Each rank has one wd_peers. One rank makes a key, which it sends to the others by other means
 * (job/launch/rank_peers.h); then all ranks open their peers together. After that an exchange is
 * put on a queue like a launch: it sends results of earlier work of the queue, and later work reads
 * what was received.
 *
 * NVIDIA GPUs use NCCL for it (dev/cuda/peers.c); other devices cannot be peers. */
#ifndef WD_DEV_PEERS_H
#define WD_DEV_PEERS_H

#include "dev/device.h"

enum { WD_PEERS_KEY_BYTES = 128, WD_PEERS_TEXT = 64 };

typedef struct wd_peers wd_peers;

/* The description of a device that can be a peer. */
typedef struct wd_peers_offer {
    char library[WD_PEERS_TEXT];  /* "NCCL 2.28.9": all peers must have the same */
    char hardware[WD_PEERS_TEXT]; /* identifies the GPU in its host: no two peers may have the same
                                   */
} wd_peers_offer;

/* Whether devices of this kind can be peers. */
bool wd_peers_may(const wd_device *device);

/* WD_UNSUPPORTED: the device cannot be a peer; the message says why. */
wd_status wd_peers_offer_of(wd_peers_offer *out, wd_device *device, wd_err *err);

/* Makes a key for a group of peers; one member calls this. The device must have made an offer. */
wd_status wd_peers_make_key(unsigned char key[WD_PEERS_KEY_BYTES], wd_device *device, wd_err *err);

/* Called once, by a thread of the peers, when they or their device have failed. */
typedef void wd_peers_fault_fn(void *context, const wd_err *fault);

typedef struct wd_peers_options {
    unsigned char key[WD_PEERS_KEY_BYTES];
    int member, members;
    double open_s;               /* time limit until all members are connected; 0: 120 seconds */
    wd_peers_fault_fn *on_fault; /* may be NULL; wd_device_fault reports the failure, too */
    void *context;
} wd_peers_options;

/* Opens this member; all members call it together. Each device must have made an offer, all offers
 * must have the same library, and no two members of a host the same hardware. Before it returns,
 * every member has exchanged data with every other one, so that the library has allocated its
 * memory; this memory is subtracted from the size of the device's pool (wd_device_bytes_max). So
 * open peers before reading that size. WD_DEVICE_FAULT: the library has failed, or a member did not
 * connect within open_s; the library's resources are then freed only when the process ends, which
 * should be soon. */
wd_status wd_peers_open(wd_peers **out, wd_device *device, const wd_peers_options *options,
                        wd_err *err);

/* Opens peers for plans, whose ranks do not run: they exchange nothing, on queues of dry devices.
 */
wd_status wd_peers_open_dry(wd_peers **out, wd_err *err);

/* A message to another member or from it, with addresses in pools. One of `from` and `to` is NULL.
 */
typedef struct wd_peer_move {
    int peer;
    const void *from;
    void *to;
    size_t bytes; /* 0: nothing is sent */
} wd_peer_move;

/* Puts all moves on the queue as one operation. The n-th move from member a to member b in a's list
 * is received by the n-th move from a in b's list, which must have as many bytes. All members make
 * their exchanges in the same order. A failure becomes the device's fault. On a queue of a dry
 * device it does nothing. */
void wd_peers_exchange(wd_peers *peers, wd_queue *queue, const wd_peer_move *moves, int count);

/* All members close their peers at the same time, when no exchange is running. NULL is allowed. */
void wd_peers_close(wd_peers *peers);

#endif
