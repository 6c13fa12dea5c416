# make install: program, libraries, headers, files for pkg-config and CMake; manual page and
# completions, which the program itself writes from its option tables.
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
string(APPEND WD_PKGCONFIG_LIBS " -lstdc++ -lpthread -lm -ldl")
# From the folder of the pkg-config file to the prefix, wherever that is.
file(RELATIVE_PATH WD_PKGCONFIG_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" WD_PKGCONFIG_PREFIX "${WD_PKGCONFIG_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/wandistiller.pc.in
               ${PROJECT_BINARY_DIR}/wandistiller.pc @ONLY)
# find_package(wandistiller): the same, for projects that are built by CMake.
include(CMakePackageConfigHelpers)
set(WD_CMAKE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/wandistiller)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/wandistillerConfig.cmake.in
  ${PROJECT_BINARY_DIR}/wandistillerConfig.cmake INSTALL_DESTINATION ${WD_CMAKE_FOLDER}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/wandistillerConfigVersion.cmake
                                 COMPATIBILITY SameMajorVersion)

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

install(TARGETS wandistiller_cli wandistiller wandistiller_shared
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_BINARY_DIR}/wandistillerConfig.cmake
        ${PROJECT_BINARY_DIR}/wandistillerConfigVersion.cmake DESTINATION ${WD_CMAKE_FOLDER})
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
