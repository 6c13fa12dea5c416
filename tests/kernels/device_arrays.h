/* Arrays of the kernel tests in a GPU's memory. Tests fill and read them on the host; a launch gets
 * copies in device memory, which this file makes, and whose results it copies back.
 *
 * Each copy has GUARD bytes before and behind it, which no launch may change: a changed one is a
 * failure of the case that runs (kernels/kernel_case.h). An array that the
 * operation only writes is given to it twice: full of 0xff, then with what the test put there.
 * Every byte that the second launch changed must come out of the first one, too; so no result
 * depends on what an output held before.
 *
 * compute-sanitizer looks for the same by itself if memory is as a program has it. So where
 * WD_TEST_SANITIZER is set the arrays have no guards, and for initcheck outputs of the first launch
 * are left as the driver gives them, and are not read. */
#ifndef WD_TESTS_KERNELS_DEVICE_ARRAYS_H
#define WD_TESTS_KERNELS_DEVICE_ARRAYS_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/cuda/impl.h"
#include "kernels/kernel_case.h"

enum { ARRAYS_AT_A_TIME = 64, ARRAY_GUARD = 256, ARRAY_GUARD_BYTE = 0xa5, OUTPUT_BYTE = 0xff };

typedef struct device_array {
    char *host;
    size_t bytes;
    wd_cu_address memory; /* [guard, bytes, guard] device; 0: no launch has used it yet */
    wd_cu_address output; /* the same for the first launch of what is only written; 0: it is read */
    int uses;             /* addresses in the arguments of a launch that lie in it */
} device_array;

static device_array device_arrays[ARRAYS_AT_A_TIME];
static int device_array_count;

static inline const char *array_sanitizer(void)
{
    const char *said = getenv("WD_TEST_SANITIZER");
    return said ? said : "";
}
static inline size_t array_guard(void)
{
    return *array_sanitizer() ? 0 : ARRAY_GUARD;
}

/* Where the device takes no copies any more, the tests go on in a new process. */
static inline void array_require(bool condition, const char *what)
{
    if (condition) return;
    kernel_case_fail("%s", what);
    kernel_case_restart();
}

/* ---- the device's memory ---- */

/* Memory of arrays that are gone, for the next ones of the same size: a GPU's driver takes long to
 * allocate and to free, and waits for the GPU. Only small blocks are kept, and few on the stand-in,
 * which protects each block around each launch. */
#ifdef WD_ON_STANDIN
enum { KEPT_MAX = 2 };
#else
enum { KEPT_MAX = 64 };
#endif
enum { KEPT_BYTES_MAX = 4 << 20 };

static struct {
    wd_cu_address memory;
    size_t bytes;
} kept_memory[KEPT_MAX];
static int kept_count;

static inline wd_cu_address array_memory(wd_cuda_device *d, size_t bytes)
{
    wd_cu_address memory = 0;
    for (int i = kept_count - 1; i >= 0; i--) {
        if (kept_memory[i].bytes != bytes) continue;
        memory = kept_memory[i].memory;
        kept_memory[i] = kept_memory[--kept_count];
        return memory;
    }
    array_require(wd__cuda_enter(d) &&
                      !wd__cuda_driver_of(d)->mem_alloc(&memory, bytes + 2 * array_guard()),
                  "there is no device memory for an array");
    return memory;
}

/* A sanitizer is to see that the array is gone. */
static inline void array_memory_free(wd_cuda_device *d, wd_cu_address memory, size_t bytes)
{
    if (!wd__cuda_enter(d)) return;
    if (*array_sanitizer() || bytes > KEPT_BYTES_MAX) {
        wd__cuda_driver_of(d)->mem_free(memory);
        return;
    }
    if (kept_count == KEPT_MAX) wd__cuda_driver_of(d)->mem_free(kept_memory[--kept_count].memory);
    kept_memory[kept_count].memory = memory;
    kept_memory[kept_count++].bytes = bytes;
}

/* ---- what tests have ---- */

static inline void *array_open(size_t bytes)
{
    char *host = NULL;
    if (device_array_count < ARRAYS_AT_A_TIME) host = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!host) {
        printf("no room for an array of %zu bytes beside %d others\n", bytes, device_array_count);
        exit(EXIT_FAILURE);
    }
    device_arrays[device_array_count++] = (device_array){.host = host, .bytes = bytes};
    return host;
}

static inline void array_close(wd_cuda_device *d, void *host)
{
    int i = 0;
    while (device_arrays[i].host != host) i++;
    if (device_arrays[i].memory)
        array_memory_free(d, device_arrays[i].memory, device_arrays[i].bytes);
    free(host);
    device_arrays[i] = device_arrays[--device_array_count];
}

static inline device_array *array_of(const void *address)
{
    for (int i = 0; i < device_array_count; i++) {
        const uintptr_t at = (uintptr_t)address - (uintptr_t)device_arrays[i].host;
        if (at < device_arrays[i].bytes) return &device_arrays[i];
    }
    return NULL;
}

/* ---- what operations only write ---- */

enum { FIELDS_MAX = 3 };

/* Offsets of the fields that name arrays which a launch only writes (dev/ops.h, "="); returns how
 * many. */
static inline int only_written(size_t field[FIELDS_MAX], wd_op op, const void *args)
{
#define ONE(name, a) (field[0] = offsetof(wd_##name##_args, a), 1)
#define TWO(name, a, b) (field[1] = offsetof(wd_##name##_args, b), 1 + ONE(name, a))
#define THREE(name, a, b, c) (field[2] = offsetof(wd_##name##_args, c), 1 + TWO(name, a, b))
#define OF(name) ((const wd_##name##_args *)args)
    switch (op) {
    case WD_OP_MATMUL:
        return OF(matmul)->beta != 0 ? 0 : ONE(matmul, c);
    case WD_OP_ATTENTION:
        return TWO(attention, o, lse);
    case WD_OP_ATTENTION_BACKWARD:
        return THREE(attention_backward, dq, dk, dv);
    case WD_OP_CONV:
        return ONE(conv, y);
    case WD_OP_LAYERNORM:
        return ONE(layernorm, y);
    case WD_OP_LAYERNORM_BACKWARD:
        return OF(layernorm_backward)->sample_stride > 0 ? TWO(layernorm_backward, dscale, dshift)
                                                         : 0;
    case WD_OP_RMSNORM:
        return ONE(rmsnorm, y);
    case WD_OP_RMSNORM_BACKWARD:
        return ONE(rmsnorm_backward, dx);
    case WD_OP_CHANNELNORM:
        return ONE(channelnorm, y);
    case WD_OP_RESIDUAL:
        return ONE(residual, y);
    case WD_OP_RESIDUAL_BACKWARD:
        return TWO(residual_backward, dbranch, dgate);
    case WD_OP_ACTIVATION:
        return ONE(activation, y);
    case WD_OP_ACTIVATION_BACKWARD:
        return ONE(activation_backward, dx);
    case WD_OP_MULTIPLY:
        return ONE(multiply, y);
    case WD_OP_ADD_TABLE:
        return ONE(add_table, y);
    case WD_OP_SUM_ROWS:
        return OF(sum_rows)->beta != 0 ? 0 : ONE(sum_rows, y);
    case WD_OP_TIMESTEP_EMBED:
        return ONE(timestep_embed, y);
    case WD_OP_STRIDED_COPY:
        return OF(strided_copy)->beta != 0 ? 0 : ONE(strided_copy, to);
    case WD_OP_GATHER_ROWS:
        return ONE(gather_rows, to);
    case WD_OP_CAST:
        return ONE(cast, to);
    case WD_OP_FILL:
        return ONE(fill, to);
    case WD_OP_COMBINE:
        return ONE(combine, y);
    case WD_OP_GUIDANCE:
        return ONE(guidance, v);
    case WD_OP_MSE:
        return TWO(mse, loss, dy);
    case WD_OP_SUM_SQUARES:
        return ONE(sum_squares, sum);
    case WD_OP_SUM_SQUARES_CHUNKS:
        return ONE(sum_squares_chunks, sums);
    case WD_OP_CLIP_FACTOR:
        return TWO(clip_factor, norm, factor);
    case WD_OP_MOMENTS:
        return OF(moments)->pack ? TWO(moments, codes.codes, codes.scales) : ONE(moments, values);
    case WD_OP_MASTERS:
        return OF(masters)->split ? TWO(masters, copy, remainder) : ONE(masters, values);
    case WD_OP_ADAMW: /* where `p` is NULL the copy is read, too */
        return OF(adamw)->p ? ONE(adamw, copy) : 0;
    default: /* WD_OP_STEP_SAMPLES and WD_OP_EMA add */
        return 0;
    }
#undef ONE
#undef TWO
#undef THREE
#undef OF
}

/* ---- launches ---- */

/* Fills `memory`, guards and all: with `host`, or, where that is NULL, with OUTPUT_BYTE. */
static inline void array_fill(wd_cuda_device *d, wd_cu_address memory, const device_array *a,
                              const char *host)
{
    const size_t guard = array_guard(), bytes = a->bytes + 2 * guard;
    char *image = malloc(bytes);
    array_require(image != NULL, "there is no memory for an array's copy");
    memset(image, ARRAY_GUARD_BYTE, bytes);
    if (host)
        memcpy(image + guard, host, a->bytes);
    else
        memset(image + guard, OUTPUT_BYTE, a->bytes);
    array_require(!wd__cuda_driver_of(d)->mem_copy(memory, (uintptr_t)image, bytes),
                  "an array cannot be copied to the device");
    free(image);
}

static inline void check_guard(const char *guard, size_t bytes, const char *side)
{
    size_t changed = 0, first = 0;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)guard[i] != ARRAY_GUARD_BYTE && !changed++) first = i;
    if (changed)
        kernel_case_fail("%zu of %zu bytes %s an array were changed, the first is byte %zu",
                         changed, bytes, side, first);
}

/* A copy of the array in device memory, to free, after its guards were looked at. */
static inline char *array_read(wd_cuda_device *d, wd_cu_address memory, const device_array *a)
{
    const size_t guard = array_guard(), bytes = a->bytes + 2 * guard;
    char *image = malloc(bytes);
    array_require(image && !wd__cuda_driver_of(d)->mem_copy((uintptr_t)image, memory, bytes),
                  "an array cannot be copied from the device");
    check_guard(image, guard, "before");
    check_guard(image + guard + a->bytes, guard, "behind");
    memmove(image, image + guard, a->bytes);
    return image;
}

/* The driver's copies from memory that is not pinned may return before the GPU has them, and queues
 * do not wait for them: this does. */
static inline void arrays_arrive(wd_cuda_device *d)
{
    array_require(!wd__cuda_driver_of(d)->ctx_synchronize(), "an array's copy failed");
}

/* Padding of arguments may hold anything, also half an address. Where the compiler cannot clear it,
 * addresses of the host are not looked for. */
#ifdef __has_builtin
#if __has_builtin(__builtin_clear_padding) && defined __x86_64__
#define CLEAR_PADDING(arguments) __builtin_clear_padding(arguments)
enum { HOST_ADDRESSES_ARE_FOUND = 1 };
#endif
#endif
#ifndef CLEAR_PADDING
#define CLEAR_PADDING(arguments) ((void)(arguments))
enum { HOST_ADDRESSES_ARE_FOUND = 0 };
#endif

/* Whether 8 bytes of arguments are an address of an x86-64 program that may lie anywhere (PIE): no
 * number that an operation takes is as large. */
static inline bool is_address(uintptr_t word)
{
    return HOST_ADDRESSES_ARE_FOUND && word >> 32 >= 0x5000 && word >> 32 < 0x8000;
}

/* Every 8 bytes of `args`, whose padding is cleared, that are an address in an array become that of
 * its copy. Any other address is of the host, which a GPU cannot read. */
static inline void arrays_name(char *args, size_t bytes, bool outputs)
{
    for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
        uintptr_t address;
        memcpy(&address, args + at, sizeof address);
        const device_array *a = array_of((const void *)address);
        array_require(a || !is_address(address), "an argument is in memory of the host");
        if (!a) continue;
        address = (outputs && a->output ? a->output : a->memory) + array_guard() +
                  (address - (uintptr_t)a->host);
        memcpy(args + at, &address, sizeof address);
    }
}

/* Makes the copies of all arrays that `args` names, and outputs for those that are only written;
 * returns how many of these there are. */
static inline int arrays_prepare(wd_cuda_device *d, wd_op op, const char *args, size_t bytes)
{
    size_t field[FIELDS_MAX];
    int outputs = 0;
    for (int i = 0; i < device_array_count; i++) device_arrays[i].uses = 0;
    for (size_t at = 0; at + sizeof(void *) <= bytes; at += sizeof(void *)) {
        void *address;
        memcpy(&address, args + at, sizeof address);
        device_array *a = array_of(address);
        if (!a) continue;
        a->uses++;
        if (!a->memory) a->memory = array_memory(d, a->bytes);
        if (a->uses == 1) array_fill(d, a->memory, a, a->host);
    }
    for (int i = only_written(field, op, args) - 1; i >= 0; i--) {
        void *address;
        memcpy(&address, args + field[i], sizeof address);
        device_array *a = array_of(address);
        if (!a || a->uses > 1) continue; /* in place of an input */
        a->output = array_memory(d, a->bytes);
        outputs++;
        if (strcmp(array_sanitizer(), "initcheck")) array_fill(d, a->output, a, NULL);
    }
    arrays_arrive(d);
    return outputs;
}

/* Fills the copies of the arrays that a launch names once more. */
static inline void arrays_fill(wd_cuda_device *d)
{
    for (int i = 0; i < device_array_count; i++)
        if (device_arrays[i].uses)
            array_fill(d, device_arrays[i].memory, &device_arrays[i], device_arrays[i].host);
    arrays_arrive(d);
}

/* What the second launch changed must have come out of the first. */
static inline void array_compare(wd_cuda_device *d, device_array *a, const char *after)
{
    if (!a->output) return;
    if (strcmp(array_sanitizer(), "initcheck")) {
        char *first = array_read(d, a->output, a);
        size_t i = 0;
        while (i < a->bytes && (after[i] == a->host[i] || after[i] == first[i])) i++;
        if (i < a->bytes)
            kernel_case_fail("byte %zu of %zu of a result depends on what the output held before",
                             i, a->bytes);
        free(first);
    }
    array_memory_free(d, a->output, a->bytes);
    a->output = 0;
}

/* Results go to the arrays of the host. */
static inline void arrays_take(wd_cuda_device *d)
{
    for (int i = 0; i < device_array_count; i++) {
        device_array *a = &device_arrays[i];
        if (!a->uses) continue;
        char *after = array_read(d, a->memory, a);
        array_compare(d, a, after);
        memcpy(a->host, after, a->bytes);
        free(after);
    }
}

#endif
