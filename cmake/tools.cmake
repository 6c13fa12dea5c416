# Programs for work on this one: built with all the rest, not installed.
add_executable(make_pipeline ${PROJECT_SOURCE_DIR}/tools/make_pipeline.c)
target_include_directories(make_pipeline PRIVATE ${PROJECT_SOURCE_DIR}
                           ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(make_pipeline PRIVATE wandistiller)
add_executable(torture ${PROJECT_SOURCE_DIR}/tools/torture.c)
target_include_directories(torture PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(torture PRIVATE wandistiller)
add_executable(demo_sheet ${PROJECT_SOURCE_DIR}/tools/demo_sheet.c)
target_include_directories(demo_sheet PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(demo_sheet PRIVATE wandistiller)
