# The cuda device, src/dev/cuda. Its C files need no CUDA toolkit: they call the driver and NVIDIA's
# libraries through tables that are filled at run time (src/dev/cuda/api.h). So tests of the device
# are built on every machine, and run on stand-ins.
file(GLOB WD_CUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/dev/cuda/*.c)
list(FILTER WD_CUDA_SOURCES EXCLUDE REGEX "(_test\\.c|/absent\\.c)$")
add_library(wd_cuda_objects OBJECT EXCLUDE_FROM_ALL ${WD_CUDA_SOURCES})
target_include_directories(wd_cuda_objects PRIVATE ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(wd_cuda_objects PRIVATE wd_flags)

# The stand-in of the driver.
set(WD_CUDA_STANDIN ${PROJECT_SOURCE_DIR}/tests/standin)
add_library(wd_cuda_standin STATIC EXCLUDE_FROM_ALL ${WD_CUDA_STANDIN}/driver.c
            ${WD_CUDA_STANDIN}/image.c ${WD_CUDA_STANDIN}/kernels.c ${WD_CUDA_STANDIN}/nccl.c
            ${WD_CUDA_STANDIN}/nccl_clique.c ${WD_CUDA_STANDIN}/pool.c
            ${WD_CUDA_STANDIN}/streams.c ${WD_CUDA_STANDIN}/work.c)
target_include_directories(wd_cuda_standin PRIVATE ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/include)
# wd_cuda_standin_libraries is of cmake/tests.cmake.
target_link_libraries(wd_cuda_standin PRIVATE wd_flags
                      INTERFACE wd_cuda_standin_libraries wd_cuda_on_host)

# NVIDIA's own headers, which tests compare our declarations with.
find_path(WD_CUDA_INCLUDE cuda.h HINTS $ENV{CUDA_HOME}/include $ENV{CUDA_PATH}/include
          /usr/local/cuda/include)
# Those of cuBLASLt and cuDNN, in one folder.
find_path(WD_CUDA_LIBRARIES_INCLUDE cublasLt.h HINTS ${WD_CUDA_INCLUDE})
# That of NCCL, which includes those of the CUDA runtime.
find_path(WD_NCCL_INCLUDE nccl.h HINTS ${WD_CUDA_INCLUDE})
if(NOT WD_CUDA_INCLUDE OR NOT EXISTS ${WD_CUDA_INCLUDE}/cuda_runtime.h)
  set(WD_NCCL_INCLUDE WD_NCCL_INCLUDE-NOTFOUND)
endif()
if(WD_CUDA_LIBRARIES_INCLUDE AND NOT EXISTS ${WD_CUDA_LIBRARIES_INCLUDE}/cudnn.h)
  set(WD_CUDA_LIBRARIES_INCLUDE WD_CUDA_LIBRARIES_INCLUDE-NOTFOUND)
endif()
