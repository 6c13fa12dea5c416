# The tests that `make check` also runs under sanitizers: those that end soon there. The build
# target sanitized_tests makes them, the label "sanitized" names them; `ctest --preset asan` and
# `ctest --preset tsan` run all tests.

# Each is a regular expression for the whole name of a test.

# Memory: what reads files, keeps books or frees what an error left half made.
set(WD_ASAN_TESTS
    "api/.*" "cli/.*" "core/.*" "io/.*" "model/.*" "train/network/.*" "train/output/.*"
    dev/device dev/device_list dev/sim/sim dev/codec/encode
    dev/cuda/api dev/cuda/cuda dev/cuda/launch dev/cuda/peers tests/standin/blocks
    job/comm/dry job/comm/ring job/comm/shared job/comm/threads job/launch/launch
    teacher/plan/strategy teacher/plan/teacher_size teacher/plan/timeline teacher/plan/traffic
    teacher/run/residency_buffers teacher/run/residency_part teacher/run/residency_part_disk
    teacher/run/stage_order
    train/loop/metrics train/loop/tensorboard train/targets/target_store
    train/targets/trajectory)
# Threads: ranks, devices with threads of their own, and what reads while others compute.
set(WD_TSAN_TESTS
    core/core core/stop io/file/file_reader dev/device dev/sim/sim dev/cuda/cuda dev/cuda/peers
    job/comm/dry job/comm/reduce job/comm/ring job/comm/shared job/comm/threads job/watch/watch
    teacher/run/residency_buffers teacher/run/residency_part_disk teacher/run/stage_order
    train/network/optimizer_host)

set(WD_SANITIZED_TESTS)
if(WD_SANITIZE MATCHES address)
  set(WD_SANITIZED_TESTS ${WD_ASAN_TESTS})
elseif(WD_SANITIZE MATCHES thread)
  set(WD_SANITIZED_TESTS ${WD_TSAN_TESTS})
endif()
add_custom_target(sanitized_tests)
foreach(source IN LISTS WD_TEST_SOURCES)
  wd_test_name(name target ${source})
  foreach(pattern IN LISTS WD_SANITIZED_TESTS)
    if(name MATCHES "^${pattern}$")
      add_dependencies(sanitized_tests ${target})
      set_tests_properties(${name} PROPERTIES LABELS sanitized)
      break()
    endif()
  endforeach()
endforeach()
# Kernels for CUDA, compiled for the host, and what runs on stand-in GPUs.
if(WD_SANITIZE MATCHES address)
  foreach(test kernels/attention kernels/conv kernels/dequantise kernels/matmul kernels/norm
          kernels/pointwise kernels/train rank_gpus reduce)
    string(REPLACE "/" "_" target ${test})
    add_dependencies(sanitized_tests test_dev_cuda_${target})
    set_tests_properties(dev/cuda/${test} PROPERTIES LABELS sanitized)
  endforeach()
endif()
