/* See nccl_clique.h. The key is the path of an open file of rank 0's process. */
#include "standin/nccl_clique.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char key_format[] = "/proc/%d/fd/%d";

void wd_nccl_clique_make_key(wd_nccl_key *key)
{
    const int fd = memfd_create("nccl-standin", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(wd_nccl_clique))) abort();
    memset(key, 0, sizeof *key);
    snprintf(key->internal, sizeof key->internal, key_format, (int)getpid(), fd);
}

wd_nccl_clique *wd_nccl_clique_open(const wd_nccl_key *key)
{
    const int fd = open(key->internal, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    void *map = mmap(NULL, sizeof(wd_nccl_clique), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    return map == MAP_FAILED ? NULL : map;
}

void wd_nccl_clique_close(wd_nccl_clique *clique, const wd_nccl_key *key)
{
    int pid, fd;
    munmap(clique, sizeof *clique);
    if (sscanf(key->internal, key_format, &pid, &fd) == 2 && pid == (int)getpid()) close(fd);
}

int wd_nccl_clique_joined(wd_nccl_clique *c)
{
    int joined = 0;
    for (int a = 0; a < WD_STANDIN_NCCL_RANKS_MAX; a++) {
        const int device = atomic_load(&c->device[a]);
        joined += device != 0;
        for (int b = 0; b < a; b++)
            if (device && atomic_load(&c->device[b]) == device) atomic_store(&c->fails, true);
    }
    return joined;
}

/* ---- routes: a ring of bytes, in which each message follows its size ---- */

bool wd_nccl_route_has_room(wd_nccl_route *r, size_t bytes)
{
    const int64_t used = atomic_load(&r->put) - atomic_load(&r->taken);
    if (bytes > WD_NCCL_ROUTE_BYTES) {
        fprintf(stderr, "NCCL's stand-in: an exchange of %zu bytes is too large\n", bytes);
        abort();
    }
    return used + (int64_t)bytes <= WD_NCCL_ROUTE_BYTES;
}

/* The bytes from position `at` on that are not behind the ring's end. */
static size_t before_end(int64_t at, size_t bytes)
{
    const size_t left = WD_NCCL_ROUTE_BYTES - (size_t)(at % WD_NCCL_ROUTE_BYTES);
    return left < bytes ? left : bytes;
}

static void write_at(wd_nccl_route *r, int64_t at, const void *from, size_t bytes)
{
    const size_t first = before_end(at, bytes);
    memcpy(r->data + at % WD_NCCL_ROUTE_BYTES, from, first);
    memcpy(r->data, (const char *)from + first, bytes - first);
}

static void read_at(const wd_nccl_route *r, int64_t at, void *to, size_t bytes)
{
    const size_t first = before_end(at, bytes);
    memcpy(to, r->data + at % WD_NCCL_ROUTE_BYTES, first);
    memcpy((char *)to + first, r->data, bytes - first);
}

void wd_nccl_route_put(wd_nccl_route *r, const void *data, size_t bytes)
{
    const int64_t at = atomic_load(&r->put);
    write_at(r, at, &bytes, sizeof bytes);
    write_at(r, at + (int64_t)sizeof bytes, data, bytes);
    atomic_store(&r->put, at + (int64_t)(sizeof bytes + bytes));
}

size_t wd_nccl_route_take(wd_nccl_route *r, void *data, size_t bytes)
{
    size_t found;
    const int64_t at = atomic_load(&r->taken);
    read_at(r, at, &found, sizeof found);
    if (found == bytes) read_at(r, at + (int64_t)sizeof found, data, bytes);
    atomic_store(&r->taken, at + (int64_t)(sizeof found + found));
    return found;
}
