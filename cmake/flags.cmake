# What every source file is compiled with.
include(GNUInstallDirs)
add_library(wd_flags INTERFACE)
target_compile_definitions(wd_flags INTERFACE _GNU_SOURCE)
target_compile_options(wd_flags INTERFACE -Wall -Wextra -Wshadow -Wpointer-arith
  # Messages are cut at the end of their buffer on purpose.
  $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>
  # Contraction is decided by us, never by the compiler: the same source gives the same bits.
  -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(WD_WERROR)
  target_compile_options(wd_flags INTERFACE -Werror)
endif()
# Who looks for mistakes wants assertions, too, whatever the build type.
if(WD_SANITIZE)
  target_compile_options(wd_flags INTERFACE -fsanitize=${WD_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all -UNDEBUG
                         # clang makes no vectors of loops that check every access
                         $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>)
  target_compile_definitions(wd_flags INTERFACE WD_SANITIZE)
  target_link_options(wd_flags INTERFACE -fsanitize=${WD_SANITIZE})
endif()
