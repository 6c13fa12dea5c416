# What keeps a mistake in reading a hostile file from becoming the attacker's program: checks of the
# stack and of copies in fixed buffers, addresses that differ from run to run, and tables of the
# linker that cannot be written. tools/check_hardening.sh sees that the program has them.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)
target_compile_options(wd_flags INTERFACE -fstack-protector-strong)
target_link_options(wd_flags INTERFACE -Wl,-z,relro,-z,now -Wl,-z,noexecstack)
# It needs optimisation, and sanitizers check copies themselves.
if(NOT WD_SANITIZE)
  target_compile_options(wd_flags INTERFACE
                         $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2>)
endif()
