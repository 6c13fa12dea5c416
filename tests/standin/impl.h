/* What the files of the stand-in driver share. Private to tests/standin.
 *
 * driver.c: devices, contexts, calls that fail; pool.c: memory of devices, pinned host memory;
 * streams.c: work, streams, events and the order in which work runs; work.c: what can be put on a
 * stream. One lock is held during every call, and so while work runs.
 */
#ifndef WD_TESTS_STANDIN_IMPL_H
#define WD_TESTS_STANDIN_IMPL_H

#include "standin/driver.h"

struct CUctx_st {
    int device;
    int retained;
    wd_cu_result fault; /* of the first work of it that failed */
};

enum { WD_STANDIN_FUNCTIONS_MAX = 16 };

/* Bytes of shared memory that a launch may have. A launch with more must raise its kernel's limit
 * by cuFuncSetAttribute first, which this program never does. */
enum { WD_STANDIN_SHARED_MAX = 48 * 1024 };

/* A function of a library's stand-in, and the devices that have it: bit d for device d. */
typedef struct wd_standin_loaded {
    void (*run)(const void *argument);
    unsigned devices;
} wd_standin_loaded;

/* The stand-in as it is installed. */
typedef struct wd_standin_state {
    wd_standin_options options;
    wd_standin_counts counts;
    struct CUctx_st context[WD_STANDIN_DEVICES_MAX];
    bool peer[WD_STANDIN_DEVICES_MAX][WD_STANDIN_DEVICES_MAX]; /* [a][b]: a may reach b */
    int modules;
    int64_t fail_call, fail_work; /* how many are left; 0: none fails */
    wd_cu_result call_result, work_result;
    uint64_t random;
    int64_t bytes_of_libraries[WD_STANDIN_DEVICES_MAX];
    wd_standin_loaded loaded[WD_STANDIN_FUNCTIONS_MAX + 1]; /* one without a function ends it */
} wd_standin_state;

extern wd_standin_state wd_the_standin;

/* Begins a call: takes the lock, counts the call, and looks for a failure that was asked for, and
 * for the current context's if the call needs one. Not 0: the call ends with it; the lock is not
 * held. */
wd_cu_result wd_standin_enter(bool needs_context);
/* The same of a call that always succeeds and is not counted. */
void wd_standin_lock(void);
/* Gives the lock back until another thread has put work on a stream, or done some, or for a moment,
 * since work of another process cannot tell. */
void wd_standin_wait_for_others(void);
/* There is work, or some is done. */
void wd_standin_tell_others(void);
/* Ends a call: gives the lock back; returns `result`. */
wd_cu_result wd_standin_leave(wd_cu_result result);
wd_cu_context wd_standin_current(void); /* of this thread */
uint64_t wd_standin_random(uint64_t below);

/* ---- pool.c ---- */

/* The device whose memory [address, address + bytes) is; -1: no device's. */
int wd_standin_owner(wd_cu_address address, size_t bytes);
/* Whether the range is pinned host memory. */
bool wd_standin_is_pinned(wd_cu_address address, size_t bytes);
/* Makes the memory of the devices in `mask` accessible, and of no other. */
void wd_standin_reach(unsigned mask);
/* Of a device's memory, what nobody has. */
size_t wd_standin_free_bytes(int device);
/* A library takes so much of the device's memory, or gives it back. */
void wd_standin_use_memory(int device, int64_t bytes);
/* Frees all there is; returns how much that was. */
int wd_standin_free_pools(void);

/* ---- work.c ---- */

/* Ends synchronous copies that devices have not yet. */
void wd_standin_finish_copies(void);
/* The device's context is gone, and with it what libraries had loaded. */
void wd_standin_unload(int device);

/* ---- streams.c ---- */

/* A piece of work, followed by its argument. */
typedef struct wd_standin_work {
    struct wd_standin_work *next;
    void (*run)(const void *argument, uint64_t seed);
    unsigned reach;                      /* devices whose memory it may touch */
    int64_t records;                     /* the point of an event that it stands for; 0: none */
    int64_t waits;                       /* the point that must be passed before; 0: none */
    bool (*ready)(const void *argument); /* it must hold before; NULL: nothing must */
    int64_t number;                      /* of all work, as it was submitted */
    _Alignas(16) unsigned char argument[];
} wd_standin_work;

/* Appends work to a stream of the current context, with the lock held. INVALID_HANDLE: that is no
 * stream. */
wd_cu_result wd_standin_submit(wd_cu_stream stream, const wd_standin_work *work,
                               const void *argument, size_t bytes);
/* The device of a stream, -1: it is none. */
int wd_standin_stream_device(wd_cu_stream stream);
/* Runs all work of the device; -1: of all. */
void wd_standin_drain(int device);
int wd_standin_free_streams(void); /* as wd_standin_free_pools */

/* ---- the functions of the table ---- */

#define X(result, field, symbol, parameters) result wd_standin_##field parameters;
WD_CUDA_DRIVER_MAP(X)
#undef X

#endif
