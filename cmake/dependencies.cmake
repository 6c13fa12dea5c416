# Parts taken, not made: see docs/design.md.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(PNG REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.13)
# Of Debian 12 it is 0.1.97, which believes what a model says of itself: src/io/text/spiece_check.c
# first. Where PKG_CONFIG_PATH names a newer one, that is taken.
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE dnnl.h REQUIRED)

# Ranks: src/job/comm/mpi.c with it, src/job/comm/absent.c without.
if(WD_MPI)
  find_package(MPI QUIET COMPONENTS C)
endif()

# What ranks find one another by before MPI_Init: src/job/launch/pmix.c with it, pmix_absent.c
# without.
# Not beside an Open MPI that has a PMIx of its own inside: a process may have only one.
find_program(WD_OMPI_INFO ompi_info)
if(MPI_C_FOUND AND WD_OMPI_INFO)
  execute_process(COMMAND ${WD_OMPI_INFO} --parsable OUTPUT_VARIABLE WD_OMPI_PARTS ERROR_QUIET)
  if(WD_OMPI_PARTS MATCHES "mca:pmix:ext[0-9]x:")
    pkg_check_modules(PMIX QUIET IMPORTED_TARGET pmix>=3)
  endif()
endif()

# Fonts of the system, opened at run time: src/io/picture/system_font.c with their headers,
# system_font_absent.c without.
pkg_check_modules(FREETYPE QUIET freetype2)
pkg_check_modules(FONTCONFIG QUIET fontconfig>=2.13)

# One OpenMP runtime in the process: the one that oneDNN is linked with (libgomp on Debian). gcc's
# -fopenmp uses it; clang's would bring a second one, so with clang one file calls libgomp itself.
if(WD_OPENMP)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(WD_OPENMP_FLAGS -fopenmp)
  endif()
  execute_process(COMMAND gcc -print-file-name=libgomp.so OUTPUT_VARIABLE WD_LIBGOMP
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
