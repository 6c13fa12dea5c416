/* The `dry` communicator: a rank of a job that is planned. It transfers nothing; operations are
 * counted, as by all kinds, and complete at once. */
#include <string.h>

#include "core/memory.h"
#include "job/comm/comm.h"

typedef struct dry_comm {
    wd_comm base;
    int64_t posted[WD_LANES];
} dry_comm;

/* Copies this rank's part to the parts of all others: planned ranks are alike, so that decisions
 * which all ranks take together are taken by this one. */
static void repeat(const wd_comm_op *op)
{
    const wd_comm_parts *parts = &op->to_parts;
    const size_t own = wd__comm_part_begin(parts, op->member),
                 bytes = wd__comm_part_bytes(parts, op->member);
    for (int i = 0; i < op->group.count; i++)
        if (i != op->member && wd__comm_part_bytes(parts, i) == bytes)
            memcpy((char *)op->to + wd__comm_part_begin(parts, i), (char *)op->to + own, bytes);
}

static wd_ticket dry_post(wd_comm *self, const wd_comm_op *op)
{
    if (op->lane == WD_LANE_CONTROL && op->kind == WD_COMM_GATHER_ALL) repeat(op);
    return (wd_ticket){op->lane, ((dry_comm *)self)->posted[op->lane]++};
}

static void dry_wait(wd_comm *self, wd_ticket ticket)
{
    (void)self, (void)ticket;
}

static void dry_close(wd_comm *self)
{
    wd_free(self);
}

static const wd_comm_vtable dry_vtable = {.post = dry_post, .wait = dry_wait, .close = dry_close};

wd_status wd_comm_open_dry(wd_comm **out, const wd_comm *like, wd_err *err)
{
    dry_comm *c;
    WD_TRY(wd_alloc((void **)&c, 1, sizeof *c, "a communicator", err));
    c->base = *like;
    c->base.vtable = &dry_vtable;
    c->base.name = "dry";
    memset(c->base.sent, 0, sizeof c->base.sent);
    *out = &c->base;
    return WD_OK;
}
