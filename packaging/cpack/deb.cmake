# Debian packages. Dependencies on libraries come from dpkg-shlibdeps; those among our own packages, and
# of what is no binary, are named here.
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE "${SYNCD_PACKAGE_RELEASE}")
set(CPACK_DEBIAN_PACKAGE_SOURCE syncd)
set(CPACK_DEBIAN_COMPRESSION_TYPE none) # finish_deb.cmake packs them once more
set(CPACK_SYNCD_DEB_COMPRESSION xz)
set(CPACK_POST_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/finish_deb.cmake")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
# Our own libraries, of which no installed package knows: the dependency on it is named below.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
foreach(_component IN ITEMS daemon client server trainer cluster)
  string(TOUPPER ${_component} _COMPONENT)
  set(CPACK_DEBIAN_${_COMPONENT}_PACKAGE_SHLIBDEPS ON)
endforeach()

set(_section_daemon net)
set(_section_cluster net)
set(_section_client libs)
set(_section_client-dev libdevel)
set(_section_server libs)
set(_section_server-dev libdevel)
set(_section_python python)
set(_section_trainer science)
set(_section_trainer-cuda contrib/science)  # it takes CUDA, which is not free
foreach(_component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${_component} _COMPONENT)
  set(CPACK_DEBIAN_${_COMPONENT}_PACKAGE_SECTION "${_section_${_component}}")
  set(CPACK_DEBIAN_${_COMPONENT}_PACKAGE_PRIORITY optional)
endforeach()
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)

set(_exactly "(= ${PROJECT_VERSION}-${SYNCD_PACKAGE_RELEASE})")
set(_client "${_deb_client}")
# Who makes the user that the service runs as, and its folders.
set(CPACK_DEBIAN_DAEMON_PACKAGE_DEPENDS
  "systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles")
set(CPACK_DEBIAN_DAEMON_PACKAGE_SUGGESTS "syncd-cluster, syncd-reference-trainer, python3-syncd")
# The daemon takes a module of its own build only.
set(CPACK_DEBIAN_CLUSTER_PACKAGE_DEPENDS "syncd ${_exactly}")
set(CPACK_DEBIAN_CLIENT_PACKAGE_SUGGESTS syncd)
# pkg-config asks for what the static library needs whatever is linked.
set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_DEPENDS "${_client} ${_exactly}, libuv1-dev, libssl-dev (>= 3)")
set(CPACK_DEBIAN_SERVER-DEV_PACKAGE_DEPENDS
  "${_deb_server} ${_exactly}, libsyncclient-dev ${_exactly}, librocksdb-dev, libtomlplusplus-dev")
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
  "${_client} (>= ${PROJECT_VERSION}), python3 (>= 3.10), python3-cffi (>= 1.15)")
# It starts a daemon of its own where none is named.
set(CPACK_DEBIAN_TRAINER_PACKAGE_DEPENDS "${_client} (>= ${PROJECT_VERSION}), syncd (>= ${PROJECT_VERSION})")
# The backend is compiled against the trainer's own headers. What it loads of CUDA, Debian has not
# packaged (NVIDIA's packages carry the toolkit's version in their names), so that it is recommended
# and not required: it may also come from an installer or a container.
set(CPACK_DEBIAN_TRAINER-CUDA_PACKAGE_DEPENDS
  "syncd-reference-trainer ${_exactly}, libc6 (>= 2.34), libgcc-s1 (>= 3.0), libstdc++6 (>= 11)")
if(SYNCD_HAS_CUDA)
  set(CPACK_DEBIAN_TRAINER-CUDA_PACKAGE_RECOMMENDS
    "libcublas-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR}")
endif()

# ---- Files beside the contents ---------------------------------------------------------------------
set(_control "${CMAKE_CURRENT_BINARY_DIR}/deb")
set(_scripts "${CMAKE_CURRENT_SOURCE_DIR}/deb")
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA "${_scripts}/python3-syncd/postinst" "${_scripts}/python3-syncd/prerm")
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA
  "${_scripts}/syncd/postinst" "${_scripts}/syncd/prerm" "${_scripts}/syncd/postrm")
file(WRITE "${_control}/syncd/conffiles" "${CMAKE_INSTALL_FULL_SYSCONFDIR}/syncd/syncd.toml\n")
list(APPEND CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA "${_control}/syncd/conffiles")

file(WRITE "${_control}/triggers" "activate-noawait ldconfig\n")

# Since which version a library has which symbol, for those that are linked against it.
find_program(SYNCD_NM nm)
mark_as_advanced(SYNCD_NM)
add_custom_target(syncd_symbols ALL)
foreach(_library IN ITEMS "syncclient:CLIENT:${_deb_client}" "libsyncd:SERVER:${_deb_server}")
  string(REPLACE ":" ";" _library "${_library}")
  list(GET _library 0 _target)
  list(GET _library 1 _COMPONENT)
  list(GET _library 2 _package)
  set(_symbols "${_control}/${_package}/symbols")
  add_custom_command(OUTPUT "${_symbols}"
    COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/deb/list_symbols" "${SYNCD_NM}" "$<TARGET_FILE:${_target}>"
      "$<TARGET_SONAME_FILE_NAME:${_target}>" "${_package}" "${_symbols}"
    DEPENDS ${_target} deb/list_symbols VERBATIM)
  add_custom_target(syncd_symbols_${_package} DEPENDS "${_symbols}")
  add_dependencies(syncd_symbols syncd_symbols_${_package})
  list(APPEND CPACK_DEBIAN_${_COMPONENT}_PACKAGE_CONTROL_EXTRA "${_symbols}" "${_control}/triggers")
endforeach()
