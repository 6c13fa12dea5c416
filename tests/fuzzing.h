/* What fuzz targets share: what libFuzzer calls, and seeds that are made in code. */
#ifndef WD_TESTS_FUZZING_H
#define WD_TESTS_FUZZING_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"

/* Each target defines the second, and the first if it has seeds. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct wd_fuzz_seed {
    const void *data;
    size_t bytes;
} wd_fuzz_seed;

static char wd_fuzz_folder_[64];

static inline void wd_fuzz_folder_remove_(void)
{
    wd_folder_remove(wd_fuzz_folder_, NULL);
}

/* To be called by LLVMFuzzerInitialize: writes the seeds to a temporary folder, and adds that
 * folder to the arguments as a corpus, unless the caller named files or folders. */
static inline int wd_fuzz_begin(int *argc, char ***argv, const wd_fuzz_seed *seeds, int count)
{
    static char *arguments[64];
    for (int i = 1; i < *argc; i++) {
        if ((*argv)[i][0] != '-') return 0;
    }
    strcpy(wd_fuzz_folder_, "/tmp/wandistiller-fuzz-XXXXXX");
    if (*argc > 60 || !mkdtemp(wd_fuzz_folder_)) abort();
    atexit(wd_fuzz_folder_remove_);
    for (int i = 0; i < count; i++) {
        char path[WD_PATH_MAX];
        snprintf(path, sizeof path, "%s/seed-%d", wd_fuzz_folder_, i);
        if (wd_file_write(path, seeds[i].data, seeds[i].bytes, NULL) != WD_OK) abort();
    }
    memcpy(arguments, *argv, (size_t)*argc * sizeof *arguments);
    arguments[(*argc)++] = wd_fuzz_folder_;
    *argv = arguments;
    return 0;
}

#endif
