/* See job/watch/watch_link.h. */
#include "job/watch/watch_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct head {
    uint32_t kind, bytes;
} head;

bool wd__watch_link_flush(wd_watch_link *link)
{
    while (link->fd >= 0 && link->out_bytes) {
        const ssize_t n = send(link->fd, link->out, link->out_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break; /* wd__watch_link_receive sees that a connection is broken */
        link->out_bytes -= (size_t)n;
        memmove(link->out, link->out + n, link->out_bytes);
    }
    return !link->out_bytes;
}

void wd__watch_link_send(wd_watch_link *link, wd_frame_kind kind, const void *data, size_t bytes)
{
    const head h = {(uint32_t)kind, (uint32_t)bytes};
    if (link->fd < 0 || bytes > WD_FRAME_BYTES_MAX ||
        sizeof link->out - link->out_bytes < sizeof h + bytes)
        return;
    memcpy(link->out + link->out_bytes, &h, sizeof h);
    if (bytes) memcpy(link->out + link->out_bytes + sizeof h, data, bytes);
    link->out_bytes += sizeof h + bytes;
    wd__watch_link_flush(link);
}

bool wd__watch_link_receive(wd_watch_link *link)
{
    while (link->fd >= 0 && link->in_bytes < sizeof link->in) {
        const ssize_t n = recv(link->fd, link->in + link->in_bytes,
                               sizeof link->in - link->in_bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (n <= 0) return false;
        link->in_bytes += (size_t)n;
    }
    return link->fd >= 0;
}

wd_watch_link_state wd__watch_link_take(wd_watch_link *link, wd_frame *out)
{
    head h;
    if (link->in_bytes < sizeof h) return WD_WATCH_LINK_EMPTY;
    memcpy(&h, link->in, sizeof h);
    if (h.kind < WD_FRAME_BEAT || h.kind >= WD_FRAME_KINDS || h.bytes > WD_FRAME_BYTES_MAX)
        return WD_WATCH_LINK_DAMAGED;
    const size_t all = sizeof h + h.bytes;
    if (link->in_bytes < all) return WD_WATCH_LINK_EMPTY;
    out->kind = (wd_frame_kind)h.kind;
    out->bytes = h.bytes;
    memcpy(out->data, link->in + sizeof h, h.bytes);
    out->data[h.bytes] = 0;
    link->in_bytes -= all;
    memmove(link->in, link->in + all, link->in_bytes);
    return WD_WATCH_LINK_FRAME;
}

void wd__watch_link_close(wd_watch_link *link)
{
    if (link->fd >= 0) close(link->fd);
    link->fd = -1;
    link->in_bytes = link->out_bytes = 0;
}
