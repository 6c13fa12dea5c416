/* Messages (frames) over a stream socket, whose functions never block: bytes that cannot be sent
 * now are kept and sent later, and a part of a frame is kept until the rest arrives. */
#ifndef WD_JOB_WATCH_WATCH_LINK_H
#define WD_JOB_WATCH_WATCH_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WD_FRAME_BYTES_MAX = 16 << 10 }; /* of a frame's data */

typedef enum wd_frame_kind {
    WD_FRAME_BEAT = 1, /* a heartbeat: a wd_watch_report */
    WD_FRAME_FAIL,     /* a rank has failed: a wd_watch_failure */
    WD_FRAME_END,      /* the failure was reported: all ranks end */
    WD_FRAME_BYE,      /* the goodbye of a rank that ends in order */
    WD_FRAME_KINDS
} wd_frame_kind;

typedef struct wd_frame {
    wd_frame_kind kind;
    size_t bytes;
    char data[WD_FRAME_BYTES_MAX + 1]; /* a zero follows the data */
} wd_frame;

typedef struct wd_watch_link {
    int fd; /* -1: none; set O_NONBLOCK */
    size_t in_bytes, out_bytes;
    char in[WD_FRAME_BYTES_MAX + 64], out[2 * WD_FRAME_BYTES_MAX + 256];
} wd_watch_link;

/* Sends a frame, as far as possible without waiting. A frame for which there is no room, because
 * the other side has received nothing for long, is dropped. */
void wd__watch_link_send(wd_watch_link *link, wd_frame_kind kind, const void *data, size_t bytes);

/* Sends bytes that were kept; whether none are left. */
bool wd__watch_link_flush(wd_watch_link *link);

/* Receives bytes; false: the other side has closed the connection. Frames that are complete can
 * still be taken then. */
bool wd__watch_link_receive(wd_watch_link *link);

typedef enum wd_watch_link_state {
    WD_WATCH_LINK_EMPTY,
    WD_WATCH_LINK_FRAME,
    WD_WATCH_LINK_DAMAGED
} wd_watch_link_state;

/* Takes the next complete frame. WD_WATCH_LINK_DAMAGED: the bytes received are no frame. */
wd_watch_link_state wd__watch_link_take(wd_watch_link *link, wd_frame *out);

void wd__watch_link_close(wd_watch_link *link);

#endif
