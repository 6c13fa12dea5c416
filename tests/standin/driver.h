/* Tests: a CUDA driver that needs no GPU. It stands behind the same table of functions
 * (dev/cuda/api.h) as NVIDIA's, and is as strict as a GPU can be, or stricter:
 *
 *   - a GPU's memory is host memory that nobody can touch (PROT_NONE) but while a kernel or a copy
 *     of that GPU runs; it begins as garbage (its first 4 MiB), and the page behind a block is
 * never accessible;
 *   - nothing that is put on a stream runs before somebody waits for it; then the streams come
 *     forward in an order that is drawn from a seed, any that streams and events allow, so that an
 *     event that is missing becomes a wrong result;
 *   - an asynchronous copy that names host memory which is not pinned fails;
 *   - a synchronous copy from such memory reaches the GPU when somebody waits for the context;
 *   - a launch with more than 48 KiB of shared memory fails unless its kernel's limit was raised;
 *   - calls with the wrong context, a closed stream or an unknown address fail;
 *   - a call, or a piece of work, can be made to fail; after work that failed all calls with that
 *     context fail, as they do on a GPU.
 *
 * What it cannot show: see docs/gpu.md.
 */
#ifndef WD_TESTS_STANDIN_DRIVER_H
#define WD_TESTS_STANDIN_DRIVER_H

#include <stdint.h>

#include "dev/cuda/api.h"

enum { WD_STANDIN_DEVICES_MAX = 8 };

/* A launch of a kernel that takes one struct by value. */
typedef struct wd_standin_launch {
    unsigned grid[3], block[3];
    size_t shared_bytes, argument_bytes;
    uint64_t seed; /* for the order in which its threads run */
} wd_standin_launch;

/* A kernel that runs on the host. */
typedef struct wd_standin_function {
    const char *name;
    void (*run)(const void *argument, const wd_standin_launch *launch);
} wd_standin_function;

typedef struct wd_standin_options {
    int devices;              /* 0: none, as where a driver finds no GPU */
    size_t bytes;             /* of memory of each */
    size_t bytes_of_others;   /* that other processes have of it */
    size_t bytes_of_context;  /* that each device's context takes */
    size_t bytes_of_function; /* that a function of a library's stand-in takes of a device when it
                               * is first put on one of its streams */
    int capability;           /* 90 is sm_90 */
    int last_capability;      /* of the last device; 0: the same */
    const char *name;         /* of each, "NVIDIA H200" */
    const char *last_name;    /* of the last, which is of another kind; NULL: it is not */
    bool no_peers;            /* no device reaches another's memory */
    int driver_version;       /* 1000 times the CUDA version that it supports; 0: 13000 */
    wd_cu_result load_result; /* what loading an image fails with; 0: it is loaded */
    uint64_t seed;            /* of the order in which streams come forward */
    /* The kernel of that name; NULL: the image that is loaded has none. */
    const wd_standin_function *(*find)(const char *name);
    const wd_cuda_api *libraries; /* the tables of other libraries, copied; NULL: none */
    bool nccl;                    /* wd_standin_install_all has NCCL's stand-in, too */
} wd_standin_options;

/* Two devices of 1 GiB. */
#define WD_STANDIN_DEFAULTS                                                                        \
    {                                                                                              \
        .devices = 2, .bytes = (size_t)1 << 30, .bytes_of_context = 1 << 20, .capability = 90,     \
        .name = "NVIDIA Stand-in"                                                                  \
    }

/* The same with our own kernels, compiled for the host, and stand-ins for cuBLASLt and cuDNN: all
 * that the cuda device needs. Fills `options`' find and libraries. */
void wd_standin_install_all(wd_standin_options *options);

/* Puts it in the place of NVIDIA's libraries, as new. `options` is copied. */
void wd_standin_install(const wd_standin_options *options);
/* NVIDIA's again. Returns how many blocks, streams, events, modules and registered ranges there
 * still were, and frees these. */
int wd_standin_remove(void);

/* Everything that was called or done since it was installed. */
typedef struct wd_standin_counts {
    int64_t calls;            /* of the driver */
    int64_t allocations;      /* of device memory */
    int64_t host_allocations; /* of pinned memory, and registrations */
    int64_t synchronous_copies;
    int64_t copies, launches; /* that were put on streams */
    int64_t host_waits;       /* for a stream, an event or a device */
    int64_t overtaken;        /* work that ran before work that was put on another stream earlier */
} wd_standin_counts;

wd_standin_counts wd_standin_count(void);

/* The order of streams is drawn from `seed` from now on. */
void wd_standin_seed(uint64_t seed);

/* Call number `n` of the driver from now (1: the next) fails with `result`, once; 0: none does. */
void wd_standin_fail_call(int64_t n, wd_cu_result result);
/* Piece of work number `n` from now that runs on any stream fails with `result`. */
void wd_standin_fail_work(int64_t n, wd_cu_result result);

/* Puts a function of a library's stand-in on a stream: when it runs, device memory of the stream's
 * GPU is accessible, and it gets a copy of the `bytes` bytes at `argument`. */
wd_cu_result wd_standin_enqueue(wd_cu_stream stream, void (*run)(const void *argument),
                                const void *argument, size_t bytes);

#endif
