/* Functions of fuzz targets: the entry point of libFuzzer, and folders and files that are made of
 * its bytes. Seeds are in tests/corpus/<target>/. */
#ifndef WD_TESTS_FUZZING_H
#define WD_TESTS_FUZZING_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file/file.h"

/* Each target defines it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Uses a value computed from bytes that were read, so that the compiler does not remove the reads.
 */
static inline void wd_fuzz_use(unsigned sum)
{
    static volatile unsigned used;
    used = sum;
    (void)used;
}

static char wd_fuzz_folder_[64];

static inline void wd_fuzz_folder_remove_(void)
{
    wd_folder_remove(wd_fuzz_folder_, NULL);
}

/* A temporary folder of this process, removed at its end; in memory where there is /dev/shm. */
static inline const char *wd_fuzz_folder(void)
{
    if (wd_fuzz_folder_[0]) return wd_fuzz_folder_;
    snprintf(wd_fuzz_folder_, sizeof wd_fuzz_folder_, "%s/wandistiller-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(wd_fuzz_folder_)) abort();
    atexit(wd_fuzz_folder_remove_);
    return wd_fuzz_folder_;
}

/* "<folder>/name"; the text lives until the next call. */
static inline const char *wd_fuzz_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", wd_fuzz_folder(), name);
    return path;
}

/* Writes a file into the folder; its folders are made. */
static inline const char *wd_fuzz_file(const char *name, const uint8_t *data, size_t bytes)
{
    const char *path = wd_fuzz_path(name);
    for (char *slash = strchr(path + strlen(wd_fuzz_folder_) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file)) abort();
    return path;
}

/* Writes the folder's files from the bytes. "@@" and a letter begin a file: 'a' is names[0], and so
 * on; bytes before the first mark belong to the first file. A file without a mark is removed. */
static inline void wd_fuzz_files(const char *const *names, int count, const uint8_t *data,
                                 size_t bytes)
{
    const uint8_t *end = data + bytes, *begin = data;
    int file = 0;
    for (int i = 0; i < count; i++) unlink(wd_fuzz_path(names[i]));
    for (const uint8_t *at = data; at < end; at++) {
        const bool marks =
            end - at >= 3 && at[0] == '@' && at[1] == '@' && at[2] >= 'a' && at[2] < 'a' + count;
        if (!marks) continue;
        if (at > begin) wd_fuzz_file(names[file], begin, (size_t)(at - begin));
        file = at[2] - 'a';
        begin = at + 3;
    }
    if (end > begin) wd_fuzz_file(names[file], begin, (size_t)(end - begin));
}

#endif
