/* Reads the values of `--devices` and `--host_memory`.
 *
 *     auto                       all GPUs that can be used, else the processor
 *     cpu                        the processor
 *     cuda:0, cuda:0,1, cuda:4-7 these GPUs, by number: cuda:4 is one GPU, the fifth
 *     cuda                       all GPUs that the driver shows
 *     sim:4x24GiB                four simulated devices of 24 GiB each
 *     sim:2x24GiB,48GiB          two of 24 GiB and one of 48
 *     sim:4xrtx4090, sim:h100    simulated cards: their memory, and the speeds that they reach;
 * also sim:4090, sim:a6000, ...: a name that is none lists them sim:4090@memory=22GiB      a card
 * of which so much is free sim:4x24GiB@link=25GB/s,compute=20GFLOP/s    the same speeds for all of
 * the list sim:4x24GiB@link=25GB/s,compute=80TFLOP/s,fp32=20TFLOP/s    fp32 has a speed of its own
 *     cpu@compute=3TFLOP/s, sim:4x24GiB@cpu=3TFLOP/s    what plans take the processor to do
 *     sim:4x24GiB@memory=80GB/s                         and copies between the ranks of a host
 *     cuda:0@link=25GB/s,compute=400TFLOP/s             speeds of GPUs that are not to be measured
 *
 * compute= is the speed of all products, unless fp32= states that of products in fp32.
 * The driver shows those GPUs that CUDA_VISIBLE_DEVICES names, and numbers them from 0.
 * Sizes are B, kB MB GB TB (powers of 1000) or KiB MiB GiB TiB (powers of 1024); speeds are such
 * sizes, or FLOP kFLOP MFLOP GFLOP TFLOP, each with /s. Numbers may have a fraction. */
#ifndef WD_DEV_DEVICE_LIST_H
#define WD_DEV_DEVICE_LIST_H

#include "core/dtype.h"
#include "core/error.h"

enum { WD_DEVICES_MAX = 64 };

typedef enum wd_device_type { WD_DEVICE_CPU, WD_DEVICE_SIM, WD_DEVICE_CUDA } wd_device_type;

/* One device, not opened. */
typedef struct wd_device_spec {
    wd_device_type type;
    int number;              /* cuda: as the driver counts GPUs */
    size_t bytes;            /* sim: its memory */
    double link_bytes_per_s; /* sim: of transfers from and to it; 0: not limited. cuda: the speed
                                that plans assume; 0: it is measured */
    double flops_per_s[WD_PRECISIONS]; /* sim: of its kernels; 0: not limited. cpu, cuda: the speed
                                          that plans assume; 0: it is measured */
} wd_device_spec;

typedef struct wd_device_list {
    wd_device_spec device[WD_DEVICES_MAX];
    int count;                    /* at least 1 */
    double processor_flops_per_s; /* of the cpu if there are other devices, in any dtype */
    double memory_bytes_per_s;    /* between the ranks of a host, all together; 0: it is measured */
    char note[2048];              /* of `auto`: which GPUs it does not take, and why; "": nothing */
} wd_device_list;

/* Reads the value of --devices. WD_INVALID_ARGUMENT names the wrong part, what was expected and
 * what was found. WD_UNSUPPORTED: GPUs are named, but this build has no CUDA, or this machine no
 * driver; the message says how to get it. `auto` and `cuda` ask the driver for the number of GPUs.
 * `auto` takes no GPU that is older than sm_80, and the processor if CUDA cannot be used; `note`
 * says so unless there is no driver at all. */
wd_status wd_device_list_parse(wd_device_list *out, const char *text, wd_err *err);

/* For `auto` whose GPUs could not be opened: makes the list the processor alone, with a note that
 * has the reason. */
void wd_device_list_take_processor(wd_device_list *list, const wd_err *why);

/* Whether the list has GPUs, real or simulated. */
bool wd_device_list_has_gpus(const wd_device_list *list);

/* Logs the note of the list as a warning, if there is one. Whoever opens its devices calls it. */
void wd_device_list_warn(const wd_device_list *list);

/* Returns WD_INVALID_ARGUMENT, with the way to state them, if a simulated device has no speeds: a
 * plan for another machine must not assume the speed of this processor. */
wd_status wd_device_list_need_speeds(const wd_device_list *list, const char *text, wd_err *err);

/* Reduces a host's devices to those of its rank number `rank` of `ranks`: each rank gets the same
 * number, in order; all ranks share a processor. WD_INVALID_ARGUMENT: they cannot be divided
 * equally. */
wd_status wd_device_list_share(wd_device_list *list, int rank, int ranks, wd_err *err);

/* Reads a size, "60GiB", for `option`, which the error names. */
wd_status wd_bytes_parse(size_t *out, const char *option, const char *text, wd_err *err);

/* Reads a speed, "12.5GB/s", for `option`. */
wd_status wd_bandwidth_parse(double *bytes_per_s, const char *option, const char *text,
                             wd_err *err);

#endif
