# The daemon. spdlog's compiled library: its headers alone take seven seconds.
add_executable(syncd main.cpp log.cpp)
target_link_libraries(syncd PRIVATE syncd_hosting syncd_admin spdlog::spdlog)
target_compile_definitions(syncd PRIVATE SYNCD_VERSION="${PROJECT_VERSION}")
syncd_target_defaults(syncd)
install(TARGETS syncd RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT daemon)
