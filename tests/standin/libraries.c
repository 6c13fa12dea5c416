/* See libraries.h. */
#include "standin/libraries.h"

wd_standin_faults wd_the_standin_faults;
wd_standin_asked wd_the_standin_asked;

void wd_standin_libraries(wd_cuda_api *api, wd_standin_put_fn *put)
{
    wd_the_standin_faults = (wd_standin_faults){0};
    wd_the_standin_asked = (wd_standin_asked){0};
    wd_standin_lt_fill(&api->lt, put);
    wd_standin_cudnn_fill(&api->cudnn, put);
    api->has[WD_CUDA_LT] = api->has[WD_CUDA_CUDNN] = true;
}
