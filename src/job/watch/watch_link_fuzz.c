/* Fuzz target: any bytes arrive over the socket between two ranks, in pieces whose length is the
 * first byte. Frames must be whole and within their bounds, and no byte is taken twice or lost. */
#include "fuzzing.h"

#include <sys/socket.h>

#include "job/watch/watch_link.h"

enum { HEAD_BYTES = 8 };

static wd_watch_link side;

/* Takes all complete frames, and adds up their bytes; false: the bytes are no frame. */
static bool take_frames(size_t *taken)
{
    static wd_frame frame;
    for (;;) {
        const wd_watch_link_state state = wd__watch_link_take(&side, &frame);
        if (state == WD_WATCH_LINK_DAMAGED) return false;
        if (state == WD_WATCH_LINK_EMPTY) return true;
        if (frame.kind < WD_FRAME_BEAT || frame.kind >= WD_FRAME_KINDS) abort();
        if (frame.bytes > WD_FRAME_BYTES_MAX || frame.data[frame.bytes]) abort();
        *taken += HEAD_BYTES + frame.bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int ends[2];
    size_t sent = 0, taken = 0;
    if (bytes < 2) return 0;
    const size_t piece = 1 + 64 * (size_t)*data++;
    bytes--;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) abort();
    side = (wd_watch_link){.fd = ends[0]};
    while (sent < bytes) {
        const size_t next = bytes - sent < piece ? bytes - sent : piece;
        const ssize_t n = send(ends[1], data + sent, next, MSG_NOSIGNAL);
        if (n <= 0) break; /* the other side has received nothing for long */
        sent += (size_t)n;
        if (!wd__watch_link_receive(&side)) abort();
        if (!take_frames(&taken)) break;
        if (taken + side.in_bytes != sent) abort();
    }
    close(ends[1]);
    wd__watch_link_close(&side);
    return 0;
}
