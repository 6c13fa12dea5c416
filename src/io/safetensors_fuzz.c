/* Fuzz target: any bytes as a safetensors file; what opens must be readable from end to end. */
#include "fuzzing.h"

#include <sys/mman.h>
#include <unistd.h>

#include "io/safetensors.h"

enum { SEEDS = 4, SEED_BYTES = 512 };

/* Header and `data_bytes` zeros as a file. */
static wd_fuzz_seed make_seed(char *out, const char *header, size_t data_bytes)
{
    uint64_t length = strlen(header);
    memset(out, 0, SEED_BYTES);
    memcpy(out, &length, 8);
    memcpy(out + 8, header, length);
    return (wd_fuzz_seed){out, 8 + length + data_bytes};
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char text[SEEDS][SEED_BYTES];
    const wd_fuzz_seed seeds[SEEDS] = {
        make_seed(text[0], "{}", 0),
        make_seed(text[1], "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8),
        make_seed(text[2],
                  "{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                  "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[12,13]}}",
                  13),
        make_seed(text[3],
                  "{\"a\":{\"dtype\":\"F16\",\"shape\":[0,9],\"data_offsets\":[4,4]},"
                  "\"b\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                  4),
    };
    return wd_fuzz_begin(argc, argv, seeds, SEEDS);
}

/* A file in memory with these bytes, by a path that can be opened. */
static void fill_file(char path[64], const uint8_t *data, size_t bytes)
{
    static int fd = -1;
    if (fd < 0) fd = memfd_create("safetensors", 0);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, bytes, 0) != (ssize_t)bytes) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    wd_err err;
    wd_safetensors *set;
    static volatile unsigned sum; /* so that the reads happen */
    fill_file(path, data, bytes);
    if (wd_safetensors_open(&set, path, &err) != WD_OK) return 0;
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        const unsigned char *at = e->tensor.data;
        size_t size = wd_tensor_bytes(&e->tensor);
        for (size_t j = 0; j < size; j++) sum += at[j];
        (void)sum;
        if (wd_safetensors_find(set, e->name) != e) abort();
        if (e->unaligned != ((uintptr_t)at % wd_dtype_bytes(e->tensor.dtype) != 0)) abort();
        wd_safetensors_will_need(e);
        wd_safetensors_dont_need(e);
    }
    wd_safetensors_metadata(set, "format");
    wd_safetensors_close(set);
    return 0;
}
