# CPack runs this before it packs what it has installed into a folder per component. Two builds of the
# same sources must give the same packages: nothing may be newer than the sources, and modes must not
# depend on the umask of whoever builds.
set(_tree "${CPACK_TEMPORARY_INSTALL_DIRECTORY}")
execute_process(COMMAND chmod -R u=rwX,go=rX "${_tree}" COMMAND_ERROR_IS_FATAL ANY)
if(CPACK_GENERATOR STREQUAL "RPM") # its tools read what a library needs only of those that can be executed
  execute_process(COMMAND find "${_tree}" -name "*.so*" -type f -exec chmod 755 {} + COMMAND_ERROR_IS_FATAL ANY)
endif()
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  # All of it, because files of the sources have the time at which they were checked out.
  execute_process(COMMAND find "${_tree}" -depth -exec touch --no-dereference
    "--date=@$ENV{SOURCE_DATE_EPOCH}" {} + COMMAND_ERROR_IS_FATAL ANY)
endif()
