/* Where NVIDIA's shared libraries may lie, and opening one of them.
 *
 * They are looked for, in this order, in
 *   1. the folders of LD_LIBRARY_PATH and of the system, by the loader;
 *   2. CUDA_HOME and CUDA_PATH: lib64 and lib;
 *   3. the Python environment that is active (VIRTUAL_ENV, CONDA_PREFIX), those of PATH, that of
 *      the python3 in PATH, the user's own packages in ~/.local and the system's Python:
 *      site-packages/nvidia/NAME/lib, where pip puts them;
 *   4. /usr/local/cuda.
 * The first of these places that has all libraries of a set comes before the others, so that one
 * that has some is not mixed with another (wd__cuda_lookup_prefer).
 */
#ifndef WD_DEV_CUDA_LOOKUP_H
#define WD_DEV_CUDA_LOOKUP_H

#include "core/error.h"

enum { WD_CUDA_PATH_TEXT = 512, WD_CUDA_LOOKED_TEXT = 1536 };

typedef struct wd_cuda_found {
    void *handle;                     /* of dlopen, never closed; NULL: not found */
    char path[WD_CUDA_PATH_TEXT];     /* of the file, or its name where the loader found it */
    char looked[WD_CUDA_LOOKED_TEXT]; /* where it was looked for, and why a file that was there
                                       * could not be opened; cut where it is too long */
} wd_cuda_found;

/* Opens the first of the file names `name` (NULL behind the last) that can be opened, such as
 * "libcublasLt.so.13"; all folders are tried with the first name before the second. Libraries that
 * depend on one another find each other, since symbols are global. */
void wd__cuda_lookup(wd_cuda_found *out, const char *const *name);

/* Makes wd__cuda_lookup begin with the first place that has, of each of `count` lists of names as
 * wd__cuda_lookup takes them, one that exists. Where no place has all, the order stays. */
void wd__cuda_lookup_prefer(const char *const *const *lists, int count);

/* Opens the files that match `pattern` of glob(7), "libnvrtc-builtins.so.*", in the folder of an
 * open library, so that this library finds them later by their names alone. Returns how many it
 * opened.
 */
int wd__cuda_lookup_beside(void *handle, const char *pattern);

/* The same for the driver, which only the system's own folders may have: the loader's, and those
 * where WSL and containers put it. */
void wd__cuda_lookup_driver(wd_cuda_found *out, const char *const *name);

#endif
