# make install: program, library, headers, pkg-config file; manual page and completions, which the
# program itself writes from its option tables.
set(WD_PKGCONFIG_REQUIRES "jansson sentencepiece libutf8proc libxxhash libpng libcrypto")
set(WD_PKGCONFIG_LIBS -ldnnl)
if(WD_OPENMP)
  string(APPEND WD_PKGCONFIG_LIBS " -lgomp")
endif()
if(MPI_C_FOUND)
  string(REPLACE ";" " " WD_MPI_LIBS "${MPI_C_LIBRARIES}")
  string(APPEND WD_PKGCONFIG_LIBS " ${WD_MPI_LIBS}")
endif()
if(PMIX_FOUND)
  string(APPEND WD_PKGCONFIG_REQUIRES " pmix")
endif()
# From the folder of the pkg-config file to the prefix, wherever that is.
file(RELATIVE_PATH WD_PKGCONFIG_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" WD_PKGCONFIG_PREFIX "${WD_PKGCONFIG_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/wandistiller.pc.in
               ${PROJECT_BINARY_DIR}/wandistiller.pc @ONLY)

set(WD_GENERATED ${PROJECT_BINARY_DIR}/generated)
set(WD_GENERATED_FILES)
foreach(pair man:wandistiller.1 bash:wandistiller.bash zsh:_wandistiller)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 kind)
  list(GET pair 1 file)
  add_custom_command(OUTPUT ${WD_GENERATED}/${file}
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${WD_GENERATED}
                     COMMAND wandistiller_cli help --${kind} > ${WD_GENERATED}/${file}
                     DEPENDS wandistiller_cli VERBATIM)
  list(APPEND WD_GENERATED_FILES ${WD_GENERATED}/${file})
endforeach()
add_custom_target(wandistiller_manual ALL DEPENDS ${WD_GENERATED_FILES})

install(TARGETS wandistiller_cli wandistiller
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/wandistiller.h
        ${PROJECT_SOURCE_DIR}/include/wandistiller_status.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_BINARY_DIR}/wandistiller.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${WD_GENERATED}/wandistiller.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${WD_GENERATED}/wandistiller.bash RENAME wandistiller
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${WD_GENERATED}/_wandistiller
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
