# What `pip install .` puts into the package beside the sources in python/wandistiller: the shared
# library, and _options.py, the functions that are made of the library's option tables. Only
# scikit-build-core (pyproject.toml) includes this file.
find_package(Python REQUIRED COMPONENTS Interpreter)
if(WD_PYTHON_LIBRARY)
  file(REAL_PATH ${WD_PYTHON_LIBRARY} WD_PACKED)
else()
  set(WD_PACKED $<TARGET_FILE:wandistiller_shared>)
endif()
set(WD_PYTHON_OPTIONS ${PROJECT_BINARY_DIR}/_options.py)
add_custom_command(OUTPUT ${WD_PYTHON_OPTIONS}
                   COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/python/make_options.py
                           ${WD_PACKED} ${WD_PYTHON_OPTIONS}
                   DEPENDS ${PROJECT_SOURCE_DIR}/python/make_options.py ${WD_PACKED} VERBATIM)
add_custom_target(wandistiller_python DEPENDS ${WD_PYTHON_OPTIONS})
install(FILES ${WD_PYTHON_OPTIONS} DESTINATION wandistiller COMPONENT python)
install(PROGRAMS ${WD_PACKED} DESTINATION wandistiller RENAME libwandistiller.so.0
        COMPONENT python)
