/* Fuzz target: any bytes as a file of chosen blocks. What is read is a choice. */
#include "fuzzing.h"

#include "api/plan/start_blocks.h"

enum { LAYERS = 4, OF = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int64_t block[LAYERS];
    const char *path = wd_fuzz_file("start-blocks.json", data, bytes);
    if (!wd__start_blocks_read(block, path, LAYERS, OF)) return 0;
    if (block[0] != 0 || block[LAYERS - 1] != OF - 1) abort();
    for (int i = 1; i < LAYERS; i++)
        if (block[i] <= block[i - 1]) abort();
    return 0;
}
