# Our CUDA kernels, src/dev/cuda/kernels.

# Compiled as C++ for the host, with what runs them there: for tests, on every machine.
file(GLOB WD_CUDA_KERNELS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/dev/cuda/kernels/*.cu)
set_source_files_properties(${WD_CUDA_KERNELS} PROPERTIES LANGUAGE CXX)
add_library(wd_cuda_on_host STATIC EXCLUDE_FROM_ALL ${WD_CUDA_KERNELS}
            ${PROJECT_SOURCE_DIR}/tests/standin/blocks.c
            ${PROJECT_SOURCE_DIR}/tests/standin/fiber.c)
target_include_directories(wd_cuda_on_host PRIVATE ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/include)
# Kernels read sixteen bytes of an array of anything at a time.
target_compile_options(wd_cuda_on_host PRIVATE
                       $<$<COMPILE_LANGUAGE:CXX>:-fno-strict-aliasing -O2>)
target_link_libraries(wd_cuda_on_host PRIVATE wd_flags)

# Compiled for GPUs, where there is nvcc; sanitizers have no use for that.
set(WD_CUDA AUTO CACHE STRING "Compile kernels for NVIDIA GPUs: AUTO where nvcc is found, ON, OFF")
# What `--version` says of them.
set(WD_CUDA_BUILT "not built, WD_CUDA is OFF")
if(WD_CUDA STREQUAL "AUTO" AND WD_SANITIZE)
  set(WD_CUDA_BUILT "not built, WD_SANITIZE is set")
endif()
if(WD_CUDA STREQUAL "OFF" OR (WD_CUDA STREQUAL "AUTO" AND WD_SANITIZE))
  return()
endif()
set(WD_CUDA_ARCHS "" CACHE STRING "Architectures to compile kernels for, \"90\"; empty: all")
find_program(WD_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(NOT WD_NVCC)
  if(WD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "WD_CUDA=ON: nvcc was not found in CUDA_HOME, /usr/local/cuda/bin or PATH; "
            "install the CUDA toolkit, or set WD_NVCC to the path of nvcc")
  endif()
  set(WD_CUDA_BUILT "not built, nvcc was not found")
  return()
endif()
set(WD_CUDA_BUILT "built")
set(WD_CUDA_IMAGE ${PROJECT_BINARY_DIR}/cuda/kernels.fatbin)
set(WD_CUDA_LOG ${PROJECT_BINARY_DIR}/cuda/kernels.log)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/cuda)
set(WD_CUDA_ALL ${PROJECT_SOURCE_DIR}/src/dev/cuda/kernels/all.cu)
add_custom_command(
  OUTPUT ${WD_CUDA_IMAGE} ${WD_CUDA_LOG}
  COMMAND ${CMAKE_COMMAND} -E env "CUDA_ARCHS=${WD_CUDA_ARCHS}"
          sh ${PROJECT_SOURCE_DIR}/tools/compile_cuda_kernels.sh ${WD_NVCC} ${CMAKE_CXX_COMPILER}
          ${WD_CUDA_IMAGE} ${WD_CUDA_LOG} -I${PROJECT_SOURCE_DIR}/src
          -I${PROJECT_SOURCE_DIR}/include -MD -MF ${WD_CUDA_IMAGE}.d -MT ${WD_CUDA_IMAGE}
          ${WD_CUDA_ALL}
  DEPENDS ${WD_CUDA_ALL} ${PROJECT_SOURCE_DIR}/tools/compile_cuda_kernels.sh
  DEPFILE ${WD_CUDA_IMAGE}.d
  COMMENT "Compiling kernels for NVIDIA GPUs"
  VERBATIM)
# wd_cuda_image of src/dev/cuda/kernels/image.h
add_library(wd_cuda_image OBJECT ${PROJECT_SOURCE_DIR}/src/dev/cuda/kernels/image.c)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/dev/cuda/kernels/image.c PROPERTIES
                            OBJECT_DEPENDS ${WD_CUDA_IMAGE})
target_compile_definitions(wd_cuda_image PRIVATE WD_CUDA_IMAGE_FILE="${WD_CUDA_IMAGE}")
target_include_directories(wd_cuda_image PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(wd_cuda_image PRIVATE wd_flags)
