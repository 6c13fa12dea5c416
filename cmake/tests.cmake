# A test lies beside what it tests: x_test.c becomes the test "folder/x". Tests that span folders
# lie in tests/. Tests may include internal headers.
include(CTest)
if(NOT BUILD_TESTING)
  return()
endif()
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

set(WD_TEST_SECONDS 600)
# Threads that wait hardly spin, for several tests share the cores: see settle_spinning in
# src/cli/main.c.
set(WD_TEST_ENVIRONMENT GOMP_SPINCOUNT=200)
# what the machine can do is measured by tests for tests
list(APPEND WD_TEST_ENVIRONMENT XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/tests/cache)
if(WD_SANITIZE)
  set(WD_TEST_SECONDS 1200)
endif()
if(WD_SANITIZE MATCHES thread) # it does not see how libgomp orders the threads of oneDNN
  list(APPEND WD_TEST_ENVIRONMENT OMP_NUM_THREADS=1)
endif()

file(GLOB_RECURSE WD_TEST_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*_test.c
     ${PROJECT_SOURCE_DIR}/tests/*_test.c)
find_program(WD_MPIRUN mpirun)
if(MPI_C_FOUND AND WD_MPIRUN) # ranks can be seen, or that there are none
  list(FILTER WD_TEST_SOURCES EXCLUDE REGEX "/tests/no_ranks_test\\.c$")
  set(WD_TESTS_OF_RANKS tests/ranks tests/ranks_ended tests/ranks_refused tests/host_ranks
      tests/quantised_ranks)
  if(NOT WD_SANITIZE MATCHES thread)
    list(APPEND WD_TESTS_OF_RANKS tests/standin_ranks)
  endif()
else()
  list(FILTER WD_TEST_SOURCES EXCLUDE REGEX
       "/tests/(((host|quantised)_)?ranks(_ended|_refused)?|standin_ranks)_test\\.c$")
  set(WD_NO_RANKS ON)
endif()
set(WD_CLI_SOURCES_TESTED ${WD_CLI_SOURCES})
list(FILTER WD_CLI_SOURCES_TESTED EXCLUDE REGEX "/main\\.c$")
if(NOT WD_CUDA_INCLUDE)
  list(FILTER WD_TEST_SOURCES EXCLUDE REGEX "/dev/cuda/abi_test\\.c$")
endif()
if(NOT WD_CUDA_LIBRARIES_INCLUDE)
  list(FILTER WD_TEST_SOURCES EXCLUDE REGEX "/dev/cuda/abi_libraries_test\\.c$")
endif()
if(NOT WD_NCCL_INCLUDE)
  list(FILTER WD_TEST_SOURCES EXCLUDE REGEX "/dev/cuda/abi_nccl_test\\.c$")
endif()
if(WD_SANITIZE MATCHES thread)
  list(FILTER WD_TEST_SOURCES EXCLUDE REGEX "/tests/standin(_ranks)?_test\\.c$")
endif()
if(NOT WD_OPENMP) # there are no teams
  list(FILTER WD_TEST_SOURCES EXCLUDE REGEX "/tests/threads_test\\.c$")
endif()
# A test that this machine cannot have: it says so and is skipped. tools/report_skips.sh lists them.
function(wd_test_not_here name why)
  add_test(NAME ${name} COMMAND sh -c "echo 'not tested here: ${name}: ${why}'; exit 77")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# There are hundreds of small programs to build: their own sources are not optimised as the library
# is, and gold links them in a third of the time, where there is one.
set(WD_TEST_OPTIMISE)
if(NOT WD_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL "Release")
  set(WD_TEST_OPTIMISE -O1)
endif()
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=gold WD_HAS_GOLD)
set(WD_TEST_LINK)
if(WD_HAS_GOLD AND NOT WD_SANITIZE)
  set(WD_TEST_LINK -fuse-ld=gold)
endif()

# The name of a source's test, "folder/x", and of the target that builds it.
function(wd_test_name name target source)
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
  string(REGEX REPLACE "^src/|_test\\.c$" "" path ${path})
  set(${name} ${path} PARENT_SCOPE)
  string(REPLACE "/" "_" path "test_${path}")
  set(${target} ${path} PARENT_SCOPE)
endfunction()

if(NOT WD_CUDA_INCLUDE)
  wd_test_not_here(dev/cuda/abi "there is no CUDA toolkit, whose header cuda.h it reads")
endif()
if(NOT WD_CUDA_LIBRARIES_INCLUDE)
  wd_test_not_here(dev/cuda/abi_libraries "there are no headers cublasLt.h and cudnn.h")
endif()
if(NOT WD_NCCL_INCLUDE)
  wd_test_not_here(dev/cuda/abi_nccl "there are no headers nccl.h and cuda_runtime.h")
endif()
if(WD_NO_RANKS)
  wd_test_not_here(tests/ranks "there is no MPI, or no mpirun")
endif()

# Builds and adds the test `name` of one source.
function(wd_unit_test name target source)
  add_executable(${target} ${source})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src
                             ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE WD_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             WD_PROGRAM="$<TARGET_FILE:wandistiller_cli>")
  target_compile_options(${target} PRIVATE ${WD_TEST_OPTIMISE})
  target_link_libraries(${target} PRIVATE wandistiller PkgConfig::CMOCKA)
  target_link_options(${target} PRIVATE ${WD_TEST_LINK})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(name MATCHES "^tests/") # these may run the program
    add_dependencies(${target} wandistiller_cli)
  endif()
  if(name MATCHES "^cli/") # the program's own files are not in the library
    target_sources(${target} PRIVATE ${WD_CLI_SOURCES_TESTED})
  endif()
  if(name MATCHES "^dev/cuda/|^tests/(standin/blocks|kernels/device_arrays)$")
    target_link_libraries(${target} PRIVATE $<TARGET_OBJECTS:wd_cuda_objects>
                          wd_cuda_standin ${CMAKE_DL_LIBS})
  endif()
  add_test(NAME ${name} COMMAND ${target})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${WD_TEST_SECONDS}
                       ENVIRONMENT "${WD_TEST_ENVIRONMENT}"
                       WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()

foreach(source IN LISTS WD_TEST_SOURCES)
  wd_test_name(name target ${source})
  wd_unit_test(${name} ${target} ${source})
endforeach()

add_dependencies(test_tests_known demo_sheet) # which tools/demo.sh runs

# The CPU's kernel tests once more, on the kernels for CUDA, compiled for the host.
foreach(list IN ITEMS attention conv dequantise matmul norm pointwise train)
  if(WD_SANITIZE MATCHES thread) # there is but one thread, and a test takes minutes
    wd_test_not_here(dev/cuda/kernels/${list} "a block's threads are fibers of one thread")
    continue()
  endif()
  wd_unit_test(dev/cuda/kernels/${list} test_dev_cuda_kernels_${list}
               ${PROJECT_SOURCE_DIR}/src/dev/cpu/${list}_test.c)
  target_compile_definitions(test_dev_cuda_kernels_${list} PRIVATE
                             WD_EXECUTORS="standin/executors.h")
  target_link_options(test_dev_cuda_kernels_${list} PRIVATE -Wl,--gc-sections)
endforeach()

# The same on a whole cuda device, with libraries: on the stand-ins.
foreach(list IN ITEMS attention conv dequantise matmul norm pointwise train)
  if(NOT WD_SANITIZE MATCHES thread)
    wd_unit_test(dev/cuda/device/${list} test_dev_cuda_device_${list}
                 ${PROJECT_SOURCE_DIR}/src/dev/cpu/${list}_test.c)
    target_compile_definitions(test_dev_cuda_device_${list} PRIVATE WD_ON_STANDIN
                               WD_EXECUTORS="kernels/device_executors.h")
  endif()
endforeach()

# The tests of devices on a cuda device, and NCCL with one rank, in the same way.
if(NOT WD_SANITIZE MATCHES thread)
  wd_unit_test(dev/cuda/device test_dev_cuda_device ${PROJECT_SOURCE_DIR}/src/dev/device_test.c)
  target_compile_definitions(test_dev_cuda_device PRIVATE WD_CUDA_TESTED WD_ON_STANDIN)
  target_link_options(test_dev_cuda_device PRIVATE -Wl,--gc-sections)
else()
  wd_test_not_here(dev/cuda/device "a block's threads are fibers of one thread")
endif()
foreach(test attention_device lone_peer properties reopen)
  target_compile_definitions(test_dev_cuda_${test} PRIVATE WD_ON_STANDIN)
endforeach()
target_compile_definitions(test_tests_kernels_device_arrays PRIVATE WD_ON_STANDIN)
target_link_options(test_tests_kernels_device_arrays PRIVATE -Wl,--wrap=wd_queue_launch)

# The tests that run on a GPU where there is one are one program: see tests/gpu_tests.c.
add_library(wd_renamed_main INTERFACE)
target_compile_options(wd_renamed_main INTERFACE -Wno-missing-prototypes)
function(wd_gpu_test name source)
  add_library(gpu_test_${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/${source})
  target_include_directories(gpu_test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src
                             ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_compile_definitions(gpu_test_${name} PRIVATE main=wd_gpu_test_${name}
                             WD_SOURCE_DIR="${PROJECT_SOURCE_DIR}" WD_PROGRAM="wandistiller"
                             ${ARGN})
  target_compile_options(gpu_test_${name} PRIVATE ${WD_TEST_OPTIMISE})
  target_link_libraries(gpu_test_${name} PRIVATE wandistiller PkgConfig::CMOCKA wd_renamed_main)
  target_sources(gpu_tests PRIVATE $<TARGET_OBJECTS:gpu_test_${name}>)
  set(WD_GPU_TESTS ${WD_GPU_TESTS} ${name} PARENT_SCOPE)
  add_test(NAME gpu/${name} COMMAND gpu_tests ${name})
  set_tests_properties(gpu/${name} PROPERTIES TIMEOUT ${WD_TEST_SECONDS} SKIP_RETURN_CODE 77
                       ENVIRONMENT "${WD_TEST_ENVIRONMENT};WD_TEST_DEVICE=cuda:0"
                       WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()

if(TARGET wd_cuda_image)
  add_executable(gpu_tests ${PROJECT_SOURCE_DIR}/tests/gpu_tests.c)
  foreach(list IN ITEMS attention conv dequantise matmul norm pointwise train)
    wd_gpu_test(${list} src/dev/cpu/${list}_test.c WD_EXECUTORS="kernels/device_executors.h")
  endforeach()
  wd_gpu_test(device src/dev/device_test.c WD_CUDA_TESTED)
  wd_gpu_test(lone_peer src/dev/cuda/lone_peer_test.c)
  wd_gpu_test(attention_device src/dev/cuda/attention_device_test.c)
  wd_gpu_test(reopen src/dev/cuda/reopen_test.c)
  wd_gpu_test(fixtures tests/fixtures_test.c)
  wd_gpu_test(properties src/dev/cuda/properties_test.c)
  list(TRANSFORM WD_GPU_TESTS REPLACE "(.+)" "X(\\1)" OUTPUT_VARIABLE WD_GPU_TESTS_LIST)
  list(JOIN WD_GPU_TESTS_LIST " " WD_GPU_TESTS_LIST)
  target_compile_options(gpu_tests PRIVATE "-DWD_GPU_TESTS(X)=${WD_GPU_TESTS_LIST}")
  target_link_libraries(gpu_tests PRIVATE wandistiller PkgConfig::CMOCKA ${CMAKE_DL_LIBS})
  target_link_options(gpu_tests PRIVATE -Wl,--gc-sections)
endif()

# What tools/gpu_check.sh runs.
add_custom_target(gpu_check_programs DEPENDS wandistiller_cli make_pipeline)
if(TARGET gpu_tests)
  add_dependencies(gpu_check_programs gpu_tests)
endif()

# PyTorch's fixtures on a simulated device, which works later than it is asked to, as a GPU does,
# and refuses copies from memory that is not pinned.
add_test(NAME tests/fixtures-sim COMMAND test_tests_fixtures)
set_tests_properties(tests/fixtures-sim PROPERTIES TIMEOUT ${WD_TEST_SECONDS}
                     ENVIRONMENT "${WD_TEST_ENVIRONMENT};WD_TEST_DEVICE=sim:2GiB"
                     WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

# What was tested on simulated devices once more, on GPUs that the stand-in driver shows.
foreach(path IN ITEMS api/setup/device_memory api/setup/rank_gpus job/comm/reduce
        teacher/run/stage_read train/loop/exact train/loop/ranks train/loop/strategies
        train/loop/strategies_ranks train/loop/waits_ranks)
  get_filename_component(list ${path} NAME)
  if(WD_SANITIZE MATCHES thread)
    wd_test_not_here(dev/cuda/${list} "a block's threads are fibers of one thread")
    continue()
  endif()
  wd_unit_test(dev/cuda/${list} test_dev_cuda_${list} ${PROJECT_SOURCE_DIR}/src/${path}_test.c)
  target_compile_definitions(test_dev_cuda_${list} PRIVATE WD_STANDIN_GPUS)
  target_link_options(test_dev_cuda_${list} PRIVATE -Wl,--gc-sections)
endforeach()

# The whole program on such GPUs, and PyTorch's fixtures by it.
if(WD_SANITIZE MATCHES thread)
  wd_test_not_here(tests/standin "a block's threads are fibers of one thread")
else()
  add_executable(wandistiller_standin EXCLUDE_FROM_ALL ${WD_CLI_SOURCES}
                 ${PROJECT_SOURCE_DIR}/tests/standin/program.c)
  target_include_directories(wandistiller_standin PRIVATE ${PROJECT_SOURCE_DIR}/src
                             ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(wandistiller_standin PRIVATE $<TARGET_OBJECTS:wd_cuda_objects>
                        wd_cuda_standin wandistiller ${CMAKE_DL_LIBS})
  foreach(test standin standin_ranks forward sample)
    if(TARGET test_tests_${test})
      add_dependencies(test_tests_${test} wandistiller_standin)
      target_compile_definitions(test_tests_${test} PRIVATE
                                 WD_STANDIN_PROGRAM="$<TARGET_FILE:wandistiller_standin>")
    endif()
  endforeach()
  wd_unit_test(tests/fixtures-standin test_tests_fixtures_standin
               ${PROJECT_SOURCE_DIR}/tests/fixtures_test.c)
  target_sources(test_tests_fixtures_standin PRIVATE
                 ${PROJECT_SOURCE_DIR}/tests/standin/program.c)
  target_link_libraries(test_tests_fixtures_standin PRIVATE $<TARGET_OBJECTS:wd_cuda_objects>
                        wd_cuda_standin ${CMAKE_DL_LIBS})
  set_tests_properties(tests/fixtures-standin PROPERTIES
                       ENVIRONMENT "${WD_TEST_ENVIRONMENT};WD_TEST_DEVICE=cuda:0")
  foreach(test forward sample)
    add_test(NAME tests/${test}-standin COMMAND test_tests_${test})
    set_tests_properties(tests/${test}-standin PROPERTIES TIMEOUT ${WD_TEST_SECONDS}
      ENVIRONMENT "${WD_TEST_ENVIRONMENT};WD_TEST_PROGRAM=$<TARGET_FILE:wandistiller_standin>;\
WD_TEST_DEVICE=cuda:0"
      WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  endforeach()
endif()

# What the cuda device calls, as shared libraries that do nothing.
foreach(list DRIVER LT CUDNN NCCL)
  string(TOLOWER ${list} name)
  add_library(cuda_library_${name} MODULE ${PROJECT_SOURCE_DIR}/tests/standin/library.c)
  target_include_directories(cuda_library_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(cuda_library_${name} PRIVATE wd_flags)
  target_compile_definitions(cuda_library_${name} PRIVATE
                             WD_LIBRARY_LIST="dev/cuda/api_${name}.h"
                             WD_LIBRARY_MAP=WD_CUDA_${list}_MAP)
  target_compile_definitions(test_dev_cuda_api PRIVATE
                             WD_LIBRARY_${list}="$<TARGET_FILE:cuda_library_${name}>")
  add_dependencies(test_dev_cuda_api cuda_library_${name})
endforeach()
# A driver with a GPU that has no memory, for tests/elsewhere.sh.
add_library(cuda_library_driver_elsewhere MODULE
            ${PROJECT_SOURCE_DIR}/tests/standin/elsewhere.c)
target_include_directories(cuda_library_driver_elsewhere PRIVATE ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(cuda_library_driver_elsewhere PRIVATE wd_flags)
add_library(cuda_library_builtins MODULE ${PROJECT_SOURCE_DIR}/tests/standin/library.c)
target_include_directories(cuda_library_builtins PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(cuda_library_builtins PRIVATE wd_flags)
target_compile_definitions(cuda_library_builtins PRIVATE WD_LIBRARY_LIST="dev/cuda/api_nccl.h"
                           WD_LIBRARY_MAP=WD_CUDA_NCCL_MAP)
target_link_options(cuda_library_builtins PRIVATE
                    -Wl,-soname,libwandistiller-builtins.so.1.0)
target_compile_definitions(test_dev_cuda_api PRIVATE
                           WD_LIBRARY_BUILTINS="$<TARGET_FILE:cuda_library_builtins>")
add_dependencies(test_dev_cuda_api cuda_library_builtins)
# The test loads it as the driver of an old machine.
target_link_options(cuda_library_driver PRIVATE -Wl,-soname,libcuda.so.1)
if(WD_CUDA_INCLUDE)
  target_include_directories(test_dev_cuda_abi SYSTEM PRIVATE ${WD_CUDA_INCLUDE})
endif()
if(WD_CUDA_LIBRARIES_INCLUDE)
  target_include_directories(test_dev_cuda_abi_libraries SYSTEM PRIVATE
                             ${WD_CUDA_LIBRARIES_INCLUDE})
endif()

if(WD_NCCL_INCLUDE)
  target_include_directories(test_dev_cuda_abi_nccl SYSTEM PRIVATE ${WD_NCCL_INCLUDE}
                             ${WD_CUDA_INCLUDE})
endif()

# Stand-ins for cuBLASLt and cuDNN, and the tests that need no more of a GPU than these.
add_library(wd_cuda_standin_libraries STATIC EXCLUDE_FROM_ALL
            ${PROJECT_SOURCE_DIR}/tests/standin/immediate_gpu.c
            ${PROJECT_SOURCE_DIR}/tests/standin/cudnn.c
            ${PROJECT_SOURCE_DIR}/tests/standin/cudnn_program.c
            ${PROJECT_SOURCE_DIR}/tests/standin/cudnn_run.c
            ${PROJECT_SOURCE_DIR}/tests/standin/libraries.c
            ${PROJECT_SOURCE_DIR}/tests/standin/lt.c
            ${PROJECT_SOURCE_DIR}/tests/standin/tensor_core.c)
target_include_directories(wd_cuda_standin_libraries PRIVATE ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(wd_cuda_standin_libraries PRIVATE wd_flags wandistiller)
# A driver with which cuDNN plans and nothing runs.
add_library(cuda_no_gpu MODULE ${PROJECT_SOURCE_DIR}/tests/standin/no_gpu.c)
target_include_directories(cuda_no_gpu PRIVATE ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(cuda_no_gpu PRIVATE wd_flags)
set_target_properties(cuda_no_gpu PROPERTIES PREFIX "" OUTPUT_NAME libcuda SUFFIX .so.1
                      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/no_gpu)
target_link_options(cuda_no_gpu PRIVATE -Wl,-soname,libcuda.so.1)
target_compile_definitions(test_dev_cuda_cudnn_plans PRIVATE
                           WD_NO_GPU="$<TARGET_FILE:cuda_no_gpu>")
add_dependencies(test_dev_cuda_cudnn_plans cuda_no_gpu)
# A test has all objects of the device; what it does not call is left out, with what that calls.
foreach(source IN LISTS WD_TEST_SOURCES)
  wd_test_name(name target ${source})
  if(name MATCHES "^dev/cuda/|^tests/(standin/blocks|kernels/device_arrays)$")
    target_link_options(${target} PRIVATE -Wl,--gc-sections)
  endif()
endforeach()
foreach(test attention conv products)
  target_link_libraries(test_dev_cuda_${test} PRIVATE wd_cuda_standin_libraries wandistiller)
  target_link_options(test_dev_cuda_${test} PRIVATE -Wl,--wrap=wd__cuda_kernels_launch)
endforeach()

foreach(test teacher_run_sweep train_loop_stepper train_loop_brought)
  target_link_options(test_${test} PRIVATE -Wl,--wrap=wd_residency_acquire)
endforeach()
target_link_options(test_train_loop_brought PRIVATE
    -Wl,--wrap=wd_stage_bring -Wl,--wrap=wd__residency_part_bring_block
    -Wl,--wrap=wd_file_reader_read -Wl,--wrap=wd_file_reader_read_pages)
foreach(test teacher_run_stage_read dev_cuda_stage_read)
  if(TARGET test_${test})
    target_link_options(test_${test} PRIVATE -Wl,--wrap=wd_queue_copy
        -Wl,--wrap=wd_file_reader_read -Wl,--wrap=wd_file_reader_read_pages)
  endif()
endforeach()
target_link_options(test_train_loop_links PRIVATE -Wl,--wrap=wd_queue_copy
    -Wl,--wrap=wd_file_reader_read -Wl,--wrap=wd_file_reader_read_pages
    -Wl,--wrap=wd_comm_send)
target_link_options(test_api_setup_memory_report PRIVATE -Wl,--wrap=fopen)
target_link_options(test_io_file_temporary PRIVATE -Wl,--wrap=open -Wl,--wrap=linkat)
target_link_options(test_io_file_writable PRIVATE -Wl,--wrap=rename -Wl,--wrap=mmap)
target_link_options(test_core_file_space PRIVATE -Wl,--wrap=fallocate)
target_link_options(test_io_tensors_safetensors_writer PRIVATE -Wl,--wrap=fallocate)
target_link_options(test_tests_disk PRIVATE -Wl,--wrap=statvfs)
target_link_options(test_tests_stop PRIVATE -Wl,--wrap=wd__umt5_bring_layer
    -Wl,--wrap=wd_tensor_values)
target_link_options(test_model_files_overlay_cache PRIVATE -Wl,--wrap=wd_safetensors_put)
# Calls of the system that fail: see tests/faults.h.
foreach(test train_network_faults train_loop_faults)
  foreach(call open read write pwrite fallocate ftruncate fsync close rename renameat2 remove)
    target_link_options(test_${test} PRIVATE -Wl,--wrap=${call})
  endforeach()
endforeach()
target_link_options(test_train_loop_dropped PRIVATE -Wl,--wrap=wd_stepper_take_result)
target_link_options(test_train_loop_repeated PRIVATE -Wl,--wrap=wd_queue_launch)
target_link_options(test_train_loop_waits PRIVATE -Wl,--wrap=wd_event_wait
    -Wl,--wrap=wd_queue_wait)
foreach(test train_loop_waits_ranks dev_cuda_waits_ranks)
  if(TARGET test_${test})
    target_link_options(test_${test} PRIVATE -Wl,--wrap=wd_event_wait -Wl,--wrap=wd_queue_wait
                        -Wl,--wrap=wd_comm_wait)
  endif()
endforeach()
target_link_options(test_tests_rates PRIVATE -Wl,--wrap=clock_gettime
    -Wl,--wrap=wd_queue_launch -Wl,--wrap=wd_queue_copy -Wl,--wrap=wd_file_reader_read_pages)
# A file system that cannot exchange two names, and an end of the process before any change of one.
target_link_options(test_train_output_checkpoint_list PRIVATE -Wl,--wrap=renameat2 -Wl,--wrap=rename
    -Wl,--wrap=remove)
target_link_options(test_train_output_earlier PRIVATE -Wl,--wrap=rename)

# How often a checkpoint is written, and what one rank alone is asked.
target_link_options(test_train_loop_ranks_trainer PRIVATE -Wl,--wrap=wd_checkpoint_write
    -Wl,--wrap=wd_stop_requested)

# Where memory ends first depends on whether there are threads.
if(WD_OPENMP)
  target_compile_definitions(test_tests_memory PRIVATE WD_OPENMP)
endif()

# The tests that enter MPI, and the same by mpirun with several ranks, which share the cores there
# are. What sanitizers have to say of Open MPI itself is not for us to mend.
if(MPI_C_FOUND)
  set(WD_MPI_ENVIRONMENT ${WD_TEST_ENVIRONMENT} OMPI_ALLOW_RUN_AS_ROOT=1
      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=fast_unwind_on_malloc=0
      LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/mpi_lsan.supp:print_suppressions=0
      TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/mpi_tsan.supp)
  target_compile_definitions(test_job_comm_mpi PRIVATE WD_HAVE_MPI)
  if(NOT WD_MPIRUN)
    target_compile_definitions(test_tests_no_ranks PRIVATE WD_HAVE_MPI)
  endif()
  set_tests_properties(job/comm/mpi ${WD_TESTS_OF_RANKS} PROPERTIES
                       ENVIRONMENT "${WD_MPI_ENVIRONMENT}")
endif()
if(MPI_C_FOUND AND WD_MPIRUN)
  foreach(ranks 1 2 4)
    add_test(NAME job/comm/mpi-${ranks} COMMAND ${WD_MPIRUN} -n ${ranks} --oversubscribe
             --bind-to none $<TARGET_FILE:test_job_comm_mpi>)
    set_tests_properties(job/comm/mpi-${ranks} PROPERTIES TIMEOUT ${WD_TEST_SECONDS}
                         ENVIRONMENT "${WD_MPI_ENVIRONMENT}"
                         WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  endforeach()
  # Several machines, of which there is but one: needs root and namespaces, and is skipped without;
  # so is Slurm where it is not installed, for nobody wants its daemons for a test.
  add_test(NAME tests/hosts COMMAND sh ${PROJECT_SOURCE_DIR}/tests/hosts.sh
           $<TARGET_FILE:wandistiller_cli> ${PROJECT_SOURCE_DIR}/models/wan-tiny
           $<TARGET_FILE:test_job_comm_mpi>)
  add_test(NAME tests/slurm COMMAND sh ${PROJECT_SOURCE_DIR}/tests/slurm.sh
           $<TARGET_FILE:wandistiller_cli> ${PROJECT_SOURCE_DIR}/models/wan-tiny)
  set_tests_properties(tests/hosts tests/slurm PROPERTIES TIMEOUT ${WD_TEST_SECONDS}
                       SKIP_RETURN_CODE 77 ENVIRONMENT "${WD_MPI_ENVIRONMENT}")
endif()

# Nothing hangs, whatever happens to a rank. Beside nothing else: how long ends take is measured.
if(MPI_C_FOUND AND WD_MPIRUN AND NOT WD_SANITIZE)
  add_test(NAME checks/torture COMMAND torture $<TARGET_FILE:wandistiller_cli>
           ${PROJECT_SOURCE_DIR} 10)
  set_tests_properties(checks/torture PROPERTIES TIMEOUT ${WD_TEST_SECONDS} RUN_SERIAL ON)
endif()

# Checks of the sources themselves.
add_test(NAME checks/columns COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_columns.sh)
add_test(NAME checks/modules COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_modules.sh)
add_test(NAME checks/names COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_names.sh)
add_test(NAME checks/readers COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_readers.sh)
add_test(NAME checks/messages COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_messages.sh)
# Needs clang-format 14, which `make check` installs.
add_test(NAME checks/format COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_format.sh)
set_tests_properties(checks/format PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME checks/plain_build COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_plain_build.sh
         ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}
         "${CMAKE_C_COMPILER} ${CMAKE_C_COMPILER_ARG1}")
add_test(NAME checks/headers COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_headers.sh
         ${PROJECT_SOURCE_DIR} "${CMAKE_C_COMPILER} ${CMAKE_C_COMPILER_ARG1}"
         "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_ARG1}")
if(WD_CUDA_IMAGE)
  add_test(NAME checks/cuda_kernels COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_cuda_kernels.sh
           ${WD_CUDA_LOG} ${WD_CUDA_IMAGE} ${PROJECT_SOURCE_DIR}/src/dev/cuda/kernels/list.h)
  set_tests_properties(checks/cuda_kernels PROPERTIES ENVIRONMENT "CUDA_ARCHS=${WD_CUDA_ARCHS}")
else()
  wd_test_not_here(checks/cuda_kernels "there is no nvcc, or it is not to be used")
endif()
add_test(NAME checks/cuda_kernels_missing COMMAND sh
         ${PROJECT_SOURCE_DIR}/tests/cuda_kernels_missing.sh ${PROJECT_SOURCE_DIR})
# The program is hardened against hostile files; sanitizers and debug builds go other ways.
if(NOT WD_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_test(NAME checks/hardening COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_hardening.sh
           $<TARGET_FILE:wandistiller_cli> $<TARGET_FILE:wandistiller_shared>)
endif()
add_test(NAME checks/library COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_library.sh
         ${PROJECT_SOURCE_DIR} $<TARGET_FILE:wandistiller_shared>)
# checks/abi compares the shared library with that of the newest release, and is skipped where there
# is none. checks/abi_rules tests what it allows and refuses. Both need abidiff.
add_test(NAME checks/abi COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_abi.sh)
add_test(NAME checks/abi_rules COMMAND sh ${PROJECT_SOURCE_DIR}/tests/abi.sh
         ${PROJECT_SOURCE_DIR} "${CMAKE_C_COMPILER} ${CMAKE_C_COMPILER_ARG1}")
set_tests_properties(checks/abi checks/abi_rules PROPERTIES TIMEOUT ${WD_TEST_SECONDS}
                     SKIP_RETURN_CODE 77)
# The bundle for machines where nothing can be installed runs by itself; it starts ranks with MPI.
if(MPI_C_FOUND AND WD_MPIRUN AND NOT WD_SANITIZE)
  add_test(NAME checks/bundle COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_bundle.sh
           ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(checks/bundle PROPERTIES TIMEOUT 400)
endif()
if(NOT WD_SANITIZE)
  add_test(NAME checks/elsewhere COMMAND sh ${PROJECT_SOURCE_DIR}/tests/elsewhere.sh
           ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(checks/elsewhere PROPERTIES TIMEOUT ${WD_TEST_SECONDS} COST 40
                       SKIP_RETURN_CODE 77)
endif()
# `make gpu-check` judges what it measures, here on stand-ins and on a simulated device.
if(NOT WD_SANITIZE)
  add_test(NAME checks/gpu_check COMMAND sh ${PROJECT_SOURCE_DIR}/tests/gpu_check.sh
           ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(checks/gpu_check PROPERTIES TIMEOUT 300 ENVIRONMENT "${WD_TEST_ENVIRONMENT}")
  if(MPI_C_FOUND AND WD_MPIRUN)
    add_test(NAME checks/gpu_check_standin COMMAND sh
             ${PROJECT_SOURCE_DIR}/tests/gpu_check_standin.sh ${PROJECT_SOURCE_DIR}
             ${PROJECT_BINARY_DIR})
    set_tests_properties(checks/gpu_check_standin PROPERTIES TIMEOUT ${WD_TEST_SECONDS}
                         ENVIRONMENT "${WD_MPI_ENVIRONMENT}" COST 30)
  endif()
endif()
# The teacher of twelve blocks that docs/recipe.md tells how to make.
add_test(NAME checks/deep_teacher COMMAND sh ${PROJECT_SOURCE_DIR}/tests/deep_teacher.sh
         ${PROJECT_SOURCE_DIR} $<TARGET_FILE:wandistiller_cli>)
set_tests_properties(checks/deep_teacher PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77
                     ENVIRONMENT "${WD_TEST_ENVIRONMENT}")
# What is installed works for somebody else's program.
set(WD_SANITIZE_FLAG)
if(WD_SANITIZE)
  set(WD_SANITIZE_FLAG -fsanitize=${WD_SANITIZE})
endif()
add_test(NAME checks/install COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_install.sh
         ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${CMAKE_C_COMPILER} ${WD_SANITIZE_FLAG})
set_tests_properties(checks/install PROPERTIES TIMEOUT 240)

# The Python package, of the library that is built here.
if(NOT WD_SANITIZE)
  add_test(NAME checks/python COMMAND sh ${PROJECT_SOURCE_DIR}/tools/check_python.sh
           ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} $<TARGET_FILE:wandistiller_shared>
           $<TARGET_FILE:wandistiller_cli>)
  set_tests_properties(checks/python PROPERTIES TIMEOUT ${WD_TEST_SECONDS} SKIP_RETURN_CODE 77
                       ENVIRONMENT "${WD_TEST_ENVIRONMENT}")
endif()

# What must hold on every instruction set: the lower ones that this machine has, too. The highest is
# what all other tests run on.
file(STRINGS /proc/cpuinfo WD_CPU_FLAGS REGEX "^flags" LIMIT_COUNT 1)
foreach(isa generic avx2 avx512 avx512_bf16 amx)
  string(REGEX REPLACE "avx512$" "avx512vl" flag ${isa})
  string(REGEX REPLACE "amx$" "amx_bf16" flag ${flag})
  if(NOT isa STREQUAL generic AND NOT WD_CPU_FLAGS MATCHES " ${flag}( |$)")
    wd_test_not_here(checks/${isa} "this processor has no ${isa}")
  elseif(NOT isa IN_LIST WD_ISA_LIST)
    wd_test_not_here(checks/${isa} "this build has no kernels of ${isa} (WD_ISAS)")
  elseif(NOT isa STREQUAL amx)
    foreach(name model/dit/dit_exact model/dit/dit train/loop/stepper)
      string(REPLACE "/" "_" target "test_${name}")
      add_test(NAME ${name}-${isa} COMMAND ${target})
      set_tests_properties(${name}-${isa} PROPERTIES TIMEOUT ${WD_TEST_SECONDS}
                           ENVIRONMENT "${WD_TEST_ENVIRONMENT};WD_CPU_ISA=${isa}"
                           WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    endforeach()
  endif()
endforeach()

add_test(NAME train/loop/stepper-guarded COMMAND test_train_loop_stepper)
add_test(NAME train/loop/links-all COMMAND test_train_loop_links)
set_tests_properties(train/loop/stepper-guarded train/loop/links-all PROPERTIES
                     TIMEOUT ${WD_TEST_SECONDS} WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests
                     ENVIRONMENT "${WD_TEST_ENVIRONMENT};WD_TEST_GUARDED=1;WD_TEST_ALL_LINKS=1")

# Tests run beside one another. The longest begin first; of those that start jobs of ranks and wait
# for their ends there is one at a time, since such a job has more threads than most machines cores.
set_tests_properties(tests/plan job/watch/watch train/loop/stepper tests/steady tests/memory
                     train/loop/links train/loop/strategies train/loop/strategies_ranks
                     train/loop/ranks train/loop/teacher_ranks
                     PROPERTIES COST 30)
set_tests_properties(tests/memory PROPERTIES TIMEOUT 1200) # of many starts, on a slow machine
foreach(name dev/cuda/cudnn_plans dev/cuda/exact dev/cuda/strategies checks/bundle checks/gpu_check)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST 30)
  endif()
endforeach()
if(WD_TESTS_OF_RANKS)
  set_tests_properties(${WD_TESTS_OF_RANKS} tests/hosts tests/slurm PROPERTIES
                       COST 40 RESOURCE_LOCK ranks)
endif()

include(cmake/sanitized.cmake)

# `make test` leaves out the tests of this list, which have the label "long"; `make check` runs them
# after all others. Each has a shorter one beside it that sees most faults.
set(WD_LONG_TESTS
    # The whole program on stand-in GPUs: tests/train, tests/forward, tests/sample and
    # tests/fixtures run it on the processor and on simulated devices.
    tests/standin tests/fixtures-standin tests/forward-standin tests/sample-standin
    tests/standin_ranks
    # The device and its kernels on stand-in GPUs: dev/cpu has the same cases, dev/cuda/kernels
    # those of norms, training and elementwise kernels, and train/loop the strategies on simulated
    # devices.
    dev/cuda/device/attention dev/cuda/device/matmul dev/cuda/device/norm dev/cuda/device/train
    dev/cuda/kernels/attention dev/cuda/kernels/matmul dev/cuda/products
    dev/cuda/exact dev/cuda/ranks dev/cuda/rank_gpus dev/cuda/reduce dev/cuda/stage_read
    dev/cuda/strategies dev/cuda/strategies_ranks dev/cuda/waits_ranks
    # Whole jobs of several processes: train/loop/ranks trains with ranks that are threads, and
    # job/comm/mpi tests the exchange between processes.
    tests/ranks tests/ranks_ended tests/ranks_refused tests/host_ranks tests/hosts
    tests/quantised_ranks tests/killed job/watch/watch
    # Every way of moving weights and every strategy with ranks: train/loop/links has some ways,
    # train/loop/strategies all strategies, train/loop/exact and train/loop/ranks some with ranks.
    train/loop/links-all train/loop/ranks_trainer train/loop/strategies_ranks
    train/loop/teacher_ranks
    # Every kind of step with memory that only the device may touch; train/loop/stepper has one
    # kind.
    train/loop/stepper-guarded
    # Every option that must not change the student, and many starts under little memory:
    # tests/train and tests/plan have some of both.
    tests/memory tests/steady tests/train_options tests/quantised_plan
    # The commands of the pages, one after another.
    tests/docs
    # What cuDNN itself plans for the models, where it is installed.
    dev/cuda/cudnn_plans
    # What `make gpu-check`, `make bundle` and `make torture` do.
    checks/gpu_check checks/gpu_check_standin checks/bundle checks/elsewhere checks/torture
    # Two builds of the library, once there is a release.
    checks/abi
    # The layout of the sources: see above.
    checks/format)
foreach(name IN LISTS WD_LONG_TESTS)
  if(TEST ${name})
    set_property(TEST ${name} APPEND PROPERTY LABELS long)
  elseif(NOT WD_SANITIZE AND NOT WD_NO_RANKS AND WD_OPENMP)
    message(FATAL_ERROR "WD_LONG_TESTS in cmake/tests.cmake: there is no test ${name}")
  endif()
endforeach()
