# Fuzz targets: x_fuzz.c beside what it attacks, built with clang's libFuzzer, address and undefined
# behaviour sanitizers (preset "fuzz"). Each becomes a test "fuzz/folder/x" that runs for
# WD_FUZZ_SECONDS, from the seeds in tests/corpus/folder/x and what earlier runs found (below the
# build folder); run the binary by hand for longer. tests/corpus/readers.txt says which target
# attacks which reader.
option(WD_FUZZ "Build the fuzz targets (needs clang)" OFF)
set(WD_FUZZ_SECONDS 3 CACHE STRING "How long each fuzz target runs as a test")
if(WD_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "WD_FUZZ needs clang: use the preset \"fuzz\", or CC=clang")
  endif()
  target_compile_options(wd_flags INTERFACE -fsanitize=fuzzer-no-link)
  add_custom_target(fuzz_targets)
  file(GLOB_RECURSE WD_FUZZ_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*_fuzz.c)
  foreach(source IN LISTS WD_FUZZ_SOURCES)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/src ${source})
    string(REGEX REPLACE "_fuzz\\.c$" "" name ${name})
    string(REPLACE "/" "_" target "fuzz_${name}")
    add_executable(${target} ${source})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${target} PRIVATE wandistiller)
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    add_dependencies(fuzz_targets ${target})
    set(corpus ${PROJECT_SOURCE_DIR}/tests/corpus/${name})
    if(NOT IS_DIRECTORY ${corpus})
      message(FATAL_ERROR "${source}: expected seeds in ${corpus}: see make_corpus.py there")
    endif()
    set(found ${PROJECT_BINARY_DIR}/fuzz/corpus/${name})
    file(MAKE_DIRECTORY ${found})
    add_test(NAME fuzz/${name} COMMAND ${target} ${found} ${corpus} -timeout=10 -rss_limit_mb=2048
             -max_total_time=${WD_FUZZ_SECONDS} -print_final_stats=1)
    set_tests_properties(fuzz/${name} PROPERTIES TIMEOUT 240
                         WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  endforeach()
endif()
