# rpm packages. Dependencies on libraries come from rpm's own generator, by the libraries' names and
# symbol versions; those among our own packages, and of what is no binary, are named here. Built on
# Debian they want that system's versions of RocksDB and others: for use elsewhere, build there.
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_RELEASE "${SYNCD_PACKAGE_RELEASE}")
set(CPACK_RPM_PACKAGE_LICENSE "Apache-2.0 AND BSD-3-Clause AND MIT AND MPL-2.0")
set(CPACK_RPM_PACKAGE_AUTOREQ ON)
set(CPACK_RPM_PACKAGE_AUTOPROV ON)
set(CPACK_RPM_COMPRESSION_TYPE xz)
set(CPACK_RPM_PACKAGE_URL "")
# Two builds of the same sources must give the same packages. Programs are stripped already.
set(CPACK_RPM_SPEC_MORE_DEFINE
"%define _buildhost localhost
%define use_source_date_epoch_as_buildtime 1
%define clamp_mtime_to_source_date_epoch 1
%define source_date_epoch_from_changelog 0
%define _build_id_links none
%define __os_install_post %{nil}
%define debug_package %{nil}")
# Folders that belong to the system.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
  /etc /lib /usr /usr/bin /usr/include /usr/lib /usr/lib64 /usr/share
  "${CMAKE_INSTALL_PREFIX}/lib/systemd" "${CMAKE_INSTALL_PREFIX}/lib/systemd/system"
  "${CMAKE_INSTALL_PREFIX}/lib/sysusers.d" "${CMAKE_INSTALL_PREFIX}/lib/tmpfiles.d"
  /usr/lib64/cmake /usr/lib64/pkgconfig /usr/share/doc /usr/share/man /usr/share/man/man1 /usr/share/man/man3
  /usr/share/man/man5 /usr/share/man/man8 /usr/share/bash-completion /usr/share/bash-completion/completions
  /usr/share/zsh /usr/share/zsh/vendor-completions /usr/share/fish /usr/share/fish/vendor_completions.d)

set(CPACK_RPM_PACKAGE_GROUP "System/Daemons")
foreach(_component IN ITEMS client server)
  set(CPACK_RPM_${_component}_PACKAGE_GROUP "System/Libraries")
  set(CPACK_RPM_${_component}-dev_PACKAGE_GROUP "Development/Libraries")
endforeach()
set(CPACK_RPM_python_PACKAGE_GROUP "Development/Libraries")

set(_exactly "= ${PROJECT_VERSION}-${SYNCD_PACKAGE_RELEASE}")
set(CPACK_RPM_client-dev_PACKAGE_REQUIRES "${_rpm_client} ${_exactly}, pkgconfig(libuv), pkgconfig(openssl)")
set(CPACK_RPM_server-dev_PACKAGE_REQUIRES
  "${_rpm_server} ${_exactly}, libsyncclient-devel ${_exactly}, pkgconfig(rocksdb), pkgconfig(tomlplusplus)")
# Who makes the user that the service runs as, and its folders.
set(CPACK_RPM_daemon_PACKAGE_REQUIRES "systemd")
set(CPACK_RPM_cluster_PACKAGE_REQUIRES "syncd ${_exactly}")
set(CPACK_RPM_trainer_PACKAGE_REQUIRES "syncd >= ${PROJECT_VERSION}")
set(CPACK_RPM_trainer-cuda_PACKAGE_REQUIRES "syncd-reference-trainer ${_exactly}")
# As in a Debian package: CUDA may also come from an installer or a container.
set(CPACK_RPM_trainer-cuda_PACKAGE_AUTOREQ OFF)
string(REGEX MATCH "python([0-9.]+)" _ "${SYNCD_PYTHON_DIR}")
set(CPACK_RPM_python_PACKAGE_REQUIRES "${_rpm_client} >= ${PROJECT_VERSION}, python3-cffi >= 1.15")
if(CMAKE_MATCH_1)
  string(APPEND CPACK_RPM_python_PACKAGE_REQUIRES ", python(abi) = ${CMAKE_MATCH_1}")
endif()
set(CPACK_RPM_python_PACKAGE_ARCHITECTURE noarch)
set(CPACK_RPM_python_BUILD_ARCHITECTURE noarch)
set(CPACK_RPM_daemon_USER_FILELIST "%config(noreplace) ${CMAKE_INSTALL_FULL_SYSCONFDIR}/syncd/syncd.toml")

set(_scripts "${CMAKE_CURRENT_SOURCE_DIR}/rpm")
set(CPACK_RPM_daemon_POST_INSTALL_SCRIPT_FILE "${_scripts}/syncd.post")
set(CPACK_RPM_daemon_PRE_UNINSTALL_SCRIPT_FILE "${_scripts}/syncd.preun")
set(CPACK_RPM_daemon_POST_UNINSTALL_SCRIPT_FILE "${_scripts}/syncd.postun")
configure_file("${_scripts}/python3-syncd.preun.in" "${CMAKE_CURRENT_BINARY_DIR}/rpm/python3-syncd.preun" @ONLY)
set(CPACK_RPM_python_PRE_UNINSTALL_SCRIPT_FILE "${CMAKE_CURRENT_BINARY_DIR}/rpm/python3-syncd.preun")
foreach(_component IN ITEMS client server)
  set(CPACK_RPM_${_component}_POST_INSTALL_SCRIPT_FILE "${_scripts}/ldconfig")
  set(CPACK_RPM_${_component}_POST_UNINSTALL_SCRIPT_FILE "${_scripts}/ldconfig")
endforeach()

# The changelog, in the order of dates that it has, as rpm writes it.
if(Python3_FOUND)
  file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/rpm")
  execute_process(COMMAND "${Python3_EXECUTABLE}" "${_scripts}/changelog" "${CMAKE_CURRENT_SOURCE_DIR}/changelog"
    OUTPUT_FILE "${CMAKE_CURRENT_BINARY_DIR}/rpm/changelog" COMMAND_ERROR_IS_FATAL ANY)
  set(CPACK_RPM_CHANGELOG_FILE "${CMAKE_CURRENT_BINARY_DIR}/rpm/changelog")
endif()
