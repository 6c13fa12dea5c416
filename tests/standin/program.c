/* Tests: linked into the program, this puts the stand-in driver in the place of NVIDIA's before
 * main begins. The environment says how many GPUs it shows (WD_STANDIN_GPUS, else 2), what they
 * are called (WD_STANDIN_NAME), and with how
 * many MiB of memory each (WD_STANDIN_MIB, else 1,024), of which other processes have a part
 * (WD_STANDIN_OTHERS_MIB, else 0), and whether there is a stand-in for NCCL (WD_STANDIN_NCCL=1),
 * which takes 6 MiB of each GPU. Where functions of libraries take memory (WD_STANDIN_FUNCTION_KIB
 * each, else 0), the program measures it once and keeps the figure, which saves most of the time of
 * a short run. What the program leaves of them at its end is said, and makes its exit code 70. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "standin/driver.h"
#include "standin/nccl.h"

enum { LEFT_BEHIND = 70, NCCL_BYTES = 6 << 20 };

static size_t number(const char *name, size_t otherwise)
{
    const char *said = getenv(name);
    return said ? (size_t)strtoull(said, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void begin(void)
{
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.devices = (int)number("WD_STANDIN_GPUS", 2);
    options.bytes = number("WD_STANDIN_MIB", 1024) << 20;
    options.bytes_of_others = number("WD_STANDIN_OTHERS_MIB", 0) << 20;
    options.nccl = number("WD_STANDIN_NCCL", 0) != 0;
    options.bytes_of_function = number("WD_STANDIN_FUNCTION_KIB", 0) << 10;
    options.seed = 20;
    if (getenv("WD_STANDIN_NAME")) options.name = getenv("WD_STANDIN_NAME");
    wd_standin_install_all(&options);
    wd_the_standin_nccl_faults.bytes_opened = NCCL_BYTES;
}

__attribute__((destructor)) static void end(void)
{
    const int left = wd_standin_remove();
    if (!left) return;
    fprintf(stderr, "%d things were left on stand-in GPUs\n", left);
    _exit(LEFT_BEHIND);
}
