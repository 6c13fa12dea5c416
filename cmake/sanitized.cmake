# The tests that `make check` also runs under sanitizers: those that end soon there. The build
# target sanitized_tests makes them, the label "sanitized" names them; `ctest --preset asan` and
# `ctest --preset tsan` run all tests.

# Memory: what reads files, keeps books or frees what an error left half made.
set(WD_ASAN_TESTS "^(api|cli|core|io|model)/|^dev/(device|device_list|sim/sim)$"
    "|^dev/codec/encode$|^dev/cuda/(api|cuda|launch|peers)$|^tests/standin/blocks$"
    "|^job/(comm/(dry|ring|shared|threads)|launch/launch)$"
    "|^teacher/plan/(strategy|teacher_size|timeline|traffic)$"
    "|^teacher/run/(residency_(buffers|part|shared_reader)|stage_order)$"
    "|^train/(network|output)/|^train/loop/(metrics|tensorboard)$|^train/targets/trajectory$")
# Threads: ranks, devices with threads of their own, and what reads while others compute.
set(WD_TSAN_TESTS "^(core/core|core/stop|io/file/file_reader)$"
    "|^dev/(device|sim/sim|cuda/(cuda|peers))$"
    "|^job/(comm/(dry|reduce|ring|shared|threads)|watch/watch)$"
    "|^teacher/run/(residency_(buffers|shared_reader)|stage_order)$")

set(WD_SANITIZED_TESTS "^$")
if(WD_SANITIZE MATCHES address)
  string(JOIN "" WD_SANITIZED_TESTS ${WD_ASAN_TESTS})
elseif(WD_SANITIZE MATCHES thread)
  string(JOIN "" WD_SANITIZED_TESTS ${WD_TSAN_TESTS})
endif()
add_custom_target(sanitized_tests)
foreach(source IN LISTS WD_TEST_SOURCES)
  wd_test_name(name target ${source})
  if(name MATCHES "${WD_SANITIZED_TESTS}")
    add_dependencies(sanitized_tests ${target})
    set_tests_properties(${name} PROPERTIES LABELS sanitized)
  endif()
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
