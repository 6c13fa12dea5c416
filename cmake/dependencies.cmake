# Parts taken, not made: see docs/design.md.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(PNG REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.13)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE dnnl.h REQUIRED)

# Ranks: src/dist/mpi.c with it, src/dist/absent.c without.
if(WD_MPI)
  find_package(MPI QUIET COMPONENTS C)
endif()

# One OpenMP runtime in the process: the one that oneDNN is linked with (libgomp on Debian). gcc's
# -fopenmp uses it; clang's would bring a second one, so with clang one file calls libgomp itself.
if(WD_OPENMP)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(WD_OPENMP_FLAGS -fopenmp)
  endif()
  execute_process(COMMAND gcc -print-file-name=libgomp.so OUTPUT_VARIABLE WD_LIBGOMP
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
