# Where its lines go. spdlog's compiled library: its headers alone take seven seconds.
add_library(syncd_log STATIC log.cpp log_file.cpp)
target_link_libraries(syncd_log PUBLIC syncd_server spdlog::spdlog)
syncd_target_defaults(syncd_log)

# The daemon.
add_executable(syncd main.cpp)
target_link_libraries(syncd PRIVATE syncd_hosting syncd_admin syncd_log)
target_compile_definitions(syncd PRIVATE SYNCD_VERSION="${PROJECT_VERSION}")
syncd_target_defaults(syncd)
install(TARGETS syncd RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT daemon)
