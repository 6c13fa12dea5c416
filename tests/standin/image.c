/* In the place of compiled kernels, in builds without nvcc. The stand-in driver looks at no image.
 */
#include "dev/cuda/kernels/image.h"

const unsigned char wd_cuda_image[] = "kernels that run on the host";
const uint64_t wd_cuda_image_bytes = sizeof wd_cuda_image;
