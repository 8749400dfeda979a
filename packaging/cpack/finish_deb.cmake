# CPack runs this on the packages that it has made. It packs Debian's once more with dpkg-deb, which
# lists files in order and takes every time from SOURCE_DATE_EPOCH, and sets right what CPack gives no
# say in: a library needs a trigger and no script to have its name known, and may be installed for
# several architectures at once.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
find_program(SYNCD_DPKG_DEB dpkg-deb REQUIRED)
set(ENV{DPKG_DEB_THREADS_MAX} 1)
foreach(_package IN LISTS CPACK_PACKAGE_FILES)
  set(_tree "${_package}.tree")
  file(REMOVE_RECURSE "${_tree}")
  execute_process(COMMAND "${SYNCD_DPKG_DEB}" --raw-extract "${_package}" "${_tree}" COMMAND_ERROR_IS_FATAL ANY)
  if(EXISTS "${_tree}/DEBIAN/triggers")
    file(REMOVE "${_tree}/DEBIAN/postinst" "${_tree}/DEBIAN/postrm")
    file(APPEND "${_tree}/DEBIAN/control" "Multi-Arch: same\n")
  endif()
  file(STRINGS "${_tree}/DEBIAN/control" _fields)
  list(FILTER _fields EXCLUDE REGEX "^$")
  list(JOIN _fields "\n" _fields)
  file(WRITE "${_tree}/DEBIAN/control" "${_fields}\n")
  execute_process(
    COMMAND "${SYNCD_DPKG_DEB}" --root-owner-group "-Z${CPACK_SYNCD_DEB_COMPRESSION}" --build "${_tree}" "${_package}"
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE_RECURSE "${_tree}")
endforeach()
