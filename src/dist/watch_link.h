/* Frames over a stream socket that never makes anybody wait: what cannot be sent now is kept and
 * sent later, what has come in part is kept until the rest is there. */
#ifndef WD_DIST_WATCH_LINK_H
#define WD_DIST_WATCH_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WD_FRAME_BYTES_MAX = 16 << 10 }; /* of what a frame carries */

typedef enum wd_frame_kind {
    WD_FRAME_BEAT = 1, /* alive, and how it is */
    WD_FRAME_FAIL,     /* a rank has failed */
    WD_FRAME_END,      /* that was reported: all end */
    WD_FRAME_BYE,      /* ends in order */
    WD_FRAME_KINDS
} wd_frame_kind;

typedef struct wd_frame {
    wd_frame_kind kind;
    size_t bytes;
    char data[WD_FRAME_BYTES_MAX + 1]; /* 0 behind it */
} wd_frame;

typedef struct wd_link {
    int fd; /* -1: none; set O_NONBLOCK */
    size_t in_bytes, out_bytes;
    char in[WD_FRAME_BYTES_MAX + 64], out[2 * WD_FRAME_BYTES_MAX + 256];
} wd_link;

/* Sends a frame, or what of it can be; one for which there is no room, since the other side has
 * taken nothing for long, is dropped. */
void wd_link_send(wd_link *link, wd_frame_kind kind, const void *data, size_t bytes);

/* Sends what is kept; whether nothing is left. */
bool wd_link_flush(wd_link *link);

/* Takes what has come; false: the other side has closed. Frames that are complete can be taken all
 * the same. */
bool wd_link_receive(wd_link *link);

typedef enum wd_link_state { WD_LINK_EMPTY, WD_LINK_FRAME, WD_LINK_DAMAGED } wd_link_state;

/* The next frame that is complete. WD_LINK_DAMAGED: what came is none. */
wd_link_state wd_link_take(wd_link *link, wd_frame *out);

void wd_link_close(wd_link *link);

#endif
