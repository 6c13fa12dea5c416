/* Tensor views: see core/tensor.h. */
#include "core/tensor.h"

#include <inttypes.h>
#include <stdio.h>

const char *wd_dims_text(char *out, size_t out_bytes, const int64_t *dim, int ndim)
{
    size_t used = 0;
    int n = snprintf(out, out_bytes, "[");
    for (int i = 0; i < ndim; i++) {
        used += (size_t)n;
        if (used >= out_bytes) return out;
        n = snprintf(out + used, out_bytes - used, "%s%" PRId64, i ? ", " : "", dim[i]);
    }
    used += (size_t)n;
    if (used < out_bytes) snprintf(out + used, out_bytes - used, "]");
    return out;
}
