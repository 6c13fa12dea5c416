# The library: every folder under src/ but the command line, and bench/. A new file needs no line.
file(GLOB_RECURSE WD_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c
     ${PROJECT_SOURCE_DIR}/src/*.cc ${PROJECT_SOURCE_DIR}/bench/*.c)
list(FILTER WD_SOURCES EXCLUDE REGEX
     "(_test\\.c|_fuzz\\.c|/src/cli/.*|/src/dev/cpu/isa/.*|/src/dev/cuda/.*)$")
if(MPI_C_FOUND)
  list(FILTER WD_SOURCES EXCLUDE REGEX "/src/job/comm/absent\\.c$")
else()
  list(FILTER WD_SOURCES EXCLUDE REGEX "/src/job/comm/mpi\\.c$")
endif()
if(PMIX_FOUND)
  list(FILTER WD_SOURCES EXCLUDE REGEX "/src/job/launch/pmix_absent\\.c$")
else()
  list(FILTER WD_SOURCES EXCLUDE REGEX "/src/job/launch/pmix\\.c$")
endif()

set(WD_FONTS_BUILT "not built")
if(FREETYPE_FOUND AND FONTCONFIG_FOUND)
  set(WD_FONTS_BUILT built)
  list(FILTER WD_SOURCES EXCLUDE REGEX "/src/io/picture/system_font_absent\\.c$")
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/src/io/picture/system_font.c PROPERTIES
    INCLUDE_DIRECTORIES "${FREETYPE_INCLUDE_DIRS};${FONTCONFIG_INCLUDE_DIRS}")
else()
  list(FILTER WD_SOURCES EXCLUDE REGEX "/src/io/picture/system_font\\.c$")
endif()

# The cuda device where its kernels can be compiled, and what says that there is none elsewhere.
if(NOT TARGET wd_cuda_image)
  list(APPEND WD_SOURCES ${PROJECT_SOURCE_DIR}/src/dev/cuda/absent.c)
endif()

add_library(wd_core_objects OBJECT ${WD_SOURCES})
target_include_directories(wd_core_objects PUBLIC ${PROJECT_SOURCE_DIR}/src
                           ${PROJECT_SOURCE_DIR}/include
                           PRIVATE ${PROJECT_SOURCE_DIR} ${DNNL_INCLUDE})
target_link_libraries(wd_core_objects PUBLIC wd_flags PkgConfig::JANSSON PkgConfig::UTF8PROC
                      PkgConfig::XXHASH PRIVATE PkgConfig::SENTENCEPIECE PNG::PNG OpenSSL::Crypto)
set(WD_MPI_BUILT "not built")
if(MPI_C_FOUND)
  set(WD_MPI_BUILT built)
endif()
set_source_files_properties(
  ${PROJECT_SOURCE_DIR}/src/api/jobs/api.c PROPERTIES COMPILE_DEFINITIONS
  "WD_FEATURES=\"GPU kernels: ${WD_CUDA_BUILT}\\nMPI: ${WD_MPI_BUILT}\\nfonts of the system: \
${WD_FONTS_BUILT}\\n\"")
# What is large is on the heap: some systems give threads little stack.
if(NOT WD_SANITIZE)
  target_compile_options(wd_core_objects PRIVATE
                         $<$<COMPILE_LANGUAGE:C>:-Wframe-larger-than=65536>)
endif()

set(WD_LINK ${DNNL_LIBRARY} PkgConfig::JANSSON PkgConfig::SENTENCEPIECE PkgConfig::UTF8PROC
    PkgConfig::XXHASH PNG::PNG OpenSSL::Crypto Threads::Threads m stdc++
    ${CMAKE_DL_LIBS})
if(MPI_C_FOUND)
  target_link_libraries(wd_core_objects PRIVATE MPI::MPI_C)
  list(APPEND WD_LINK MPI::MPI_C)
endif()
if(PMIX_FOUND)
  target_link_libraries(wd_core_objects PRIVATE PkgConfig::PMIX)
  list(APPEND WD_LINK PkgConfig::PMIX)
endif()
if(WD_OPENMP)
  list(APPEND WD_LINK ${WD_LIBGOMP})
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/core/parallel.c PROPERTIES
                              COMPILE_OPTIONS "${WD_OPENMP_FLAGS}" COMPILE_DEFINITIONS WD_OPENMP)
endif()

# Kernels that exist once per instruction set: src/dev/cpu/isa/*.c, compiled for each with WD_ISA as
# the suffix of their symbols; which one runs is decided when the device is opened.
file(GLOB WD_ISA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/dev/cpu/isa/*.c)
list(FILTER WD_ISA_SOURCES EXCLUDE REGEX "_test\\.c$")
set(WD_ISA_OPTIMISE -O3)
if(WD_SANITIZE) # which takes minutes a file at -O3
  set(WD_ISA_OPTIMISE -O1)
endif()
if(WD_FUZZ) # no fuzz target runs a kernel
  set(WD_ISA_OPTIMISE -O0 -fno-sanitize=all)
endif()
set(WD_ISA_FLAGS_generic "")
set(WD_ISA_LIST generic)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  include(CheckCSourceCompiles)
  set(WD_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(WD_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
      -mprefer-vector-width=512)
  set(WD_ISA_FLAGS_avx512_bf16 ${WD_ISA_FLAGS_avx512} -mavx512bf16)
  set(WD_ISA_FLAGS_amx ${WD_ISA_FLAGS_avx512_bf16})
  set(CMAKE_REQUIRED_FLAGS "-mamx-tile -mamx-bf16") # which old assemblers do not know
  check_c_source_compiles("#include <immintrin.h>\nint main(void) { _tile_zero(0); return 0; }"
                          WD_COMPILES_AMX)
  unset(CMAKE_REQUIRED_FLAGS)
  if(WD_COMPILES_AMX)
    list(APPEND WD_ISA_FLAGS_amx -mamx-tile -mamx-bf16)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/dev/cpu/isa.c PROPERTIES
                                COMPILE_DEFINITIONS WD_AMX)
  endif()
  list(APPEND WD_ISA_LIST avx2 avx512 avx512_bf16 amx)
endif()
# Which sets are built: "all"; "native": generic and the best set of this machine's processor; or a
# list of names, to which generic is added. To "native" belong two more sets. The system may refuse
# AMX: then the next best one is used. And cuBLASLt's stand-in multiplies with the best set up to
# avx512: with generic, sanitized tests of GPUs take six times as long.
set(WD_ISAS all CACHE STRING "Instruction sets to build kernels for: all, native, or a list")
if(WD_ISAS STREQUAL "native")
  file(STRINGS /proc/cpuinfo WD_CPU_FLAGS REGEX "^flags" LIMIT_COUNT 1)
  set(WD_ISAS_WANTED)
  foreach(pair avx2:avx2 avx512:avx512vl avx512_bf16:avx512_bf16 amx:amx_bf16) # the best is last
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 1 flag)
    if(WD_CPU_FLAGS MATCHES " ${flag}( |$)")
      list(GET pair 0 WD_ISAS_WANTED)
    endif()
  endforeach()
  if(WD_ISAS_WANTED STREQUAL "amx")
    list(PREPEND WD_ISAS_WANTED avx512_bf16)
  endif()
  if(WD_SANITIZE AND WD_ISAS_WANTED MATCHES "avx512_bf16")
    list(PREPEND WD_ISAS_WANTED avx512)
  endif()
elseif(WD_ISAS STREQUAL "all")
  set(WD_ISAS_WANTED ${WD_ISA_LIST})
else()
  set(WD_ISAS_WANTED ${WD_ISAS})
endif()
foreach(isa IN LISTS WD_ISAS_WANTED)
  if(NOT isa IN_LIST WD_ISA_LIST)
    message(FATAL_ERROR "WD_ISAS=${WD_ISAS}: expected all, native, or a list of ${WD_ISA_LIST}; "
                        "found ${isa}")
  endif()
endforeach()
set(WD_ISA_LIST generic ${WD_ISAS_WANTED})
list(REMOVE_DUPLICATES WD_ISA_LIST)
list(TRANSFORM WD_ISA_LIST PREPEND WD_BUILT_ OUTPUT_VARIABLE WD_ISAS_BUILT)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/dev/cpu/kernels.c PROPERTIES
                            COMPILE_DEFINITIONS "${WD_ISAS_BUILT}")
set(WD_OBJECT_TARGETS wd_core_objects)
if(TARGET wd_cuda_image)
  list(APPEND WD_OBJECT_TARGETS wd_cuda_objects wd_cuda_image)
endif()
if(WD_ISA_SOURCES)
  foreach(isa IN LISTS WD_ISA_LIST)
    add_library(wd_isa_${isa} OBJECT ${WD_ISA_SOURCES})
    target_include_directories(wd_isa_${isa} PRIVATE ${PROJECT_SOURCE_DIR}/src
                               ${PROJECT_SOURCE_DIR}/include)
    target_compile_definitions(wd_isa_${isa} PRIVATE WD_ISA=${isa})
    target_compile_options(wd_isa_${isa} PRIVATE ${WD_ISA_OPTIMISE} ${WD_ISA_FLAGS_${isa}})
    target_link_libraries(wd_isa_${isa} PRIVATE wd_flags)
    list(APPEND WD_OBJECT_TARGETS wd_isa_${isa})
  endforeach()
endif()
# One set of objects makes both libraries. Programs see what WD_API marks in the public headers.
set_target_properties(${WD_OBJECT_TARGETS} PROPERTIES C_VISIBILITY_PRESET hidden
                      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
list(TRANSFORM WD_OBJECT_TARGETS REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE WD_OBJECTS)

add_library(wandistiller STATIC ${WD_OBJECTS})
target_include_directories(wandistiller PUBLIC ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(wandistiller PUBLIC wd_flags ${WD_LINK})

add_library(wandistiller_shared SHARED ${WD_OBJECTS})
target_include_directories(wandistiller_shared INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(wandistiller_shared PRIVATE wd_flags ${WD_LINK})
# The version script hides what templates of the C++ library would export.
set(WD_EXPORTS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
target_link_options(wandistiller_shared PRIVATE -Wl,--version-script=${WD_EXPORTS})
if(NOT WD_SANITIZE) # whose functions the program has
  target_link_options(wandistiller_shared PRIVATE -Wl,-z,defs)
endif()
set_target_properties(wandistiller_shared PROPERTIES OUTPUT_NAME wandistiller
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                      LINK_DEPENDS ${WD_EXPORTS}
                      BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)

file(GLOB WD_CLI_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.c)
list(FILTER WD_CLI_SOURCES EXCLUDE REGEX "_test\\.c$")
# The commit that `--version` prints, where the source is a clone; "+": it was changed since.
set(WD_COMMIT)
if(EXISTS ${PROJECT_SOURCE_DIR}/.git)
  execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} describe --always --abbrev=12 --exclude=*
                          --dirty=+
                  OUTPUT_VARIABLE WD_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(WD_COMMIT MATCHES "^[0-9a-f]+[+]?$")
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cli/main.c PROPERTIES
                              COMPILE_DEFINITIONS "WD_COMMIT=\" (${WD_COMMIT})\"")
endif()
if(WD_CLI_SOURCES)
  add_executable(wandistiller_cli ${WD_CLI_SOURCES})
  # The program has its final RUNPATH from the start. CMake would otherwise write a longer one, to
  # replace it at installation, and where the linker is given others pad it with an empty element,
  # which the dynamic linker takes for the current folder.
  set_target_properties(wandistiller_cli PROPERTIES OUTPUT_NAME wandistiller
                        BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
  target_include_directories(wandistiller_cli PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(wandistiller_cli PRIVATE wandistiller)
endif()
