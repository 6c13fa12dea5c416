/* Tensor views: see core/tensor.h. */
#include "core/tensor.h"

#include <inttypes.h>

#include "core/text.h"

const char *wd_dims_text(char *out, size_t out_bytes, const int64_t *dim, int ndim)
{
    size_t used = wd_append_text(out, out_bytes, 0, "[");
    for (int i = 0; i < ndim; i++)
        used = wd_append_text(out, out_bytes, used, "%s%" PRId64, i ? ", " : "", dim[i]);
    wd_append_text(out, out_bytes, used, "]");
    return out;
}
