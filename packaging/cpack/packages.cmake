# The packages: which components go into which, what each depends on, and what both formats need
# besides. packaging/build_packages configures a build for each format in turn (a Debian package keeps
# libraries in lib/<triplet>, an rpm in lib64) and runs CPack.
#
#   component    Debian package               rpm
#   daemon       syncd                        the same
#   client       libsyncclient0               the same: the number is the ABI's, so that two versions
#   client-dev   libsyncclient-dev            libsyncclient-devel    of it can be installed at once
#   server       libsyncd0                    the same
#   server-dev   libsyncd-dev                 libsyncd-devel
#   python       python3-syncd                the same
#   trainer      syncd-reference-trainer      the same
#   trainer-cuda syncd-reference-trainer-cuda the same, where a CUDA toolkit was found
#   cluster      syncd-cluster                the same, where gRPC was found
#
# libsyncd, the daemon inside a program, is a library of its own beside libsyncclient, because it needs
# RocksDB and a program that only trains should not.
set(SYNCD_PACKAGE_RELEASE 1 CACHE STRING "What stands behind the version of packages: raised when only the packaging changes")
mark_as_advanced(SYNCD_PACKAGE_RELEASE)

set(CPACK_PACKAGE_NAME syncd)
set(CPACK_PACKAGE_VENDOR "syncd maintainers")
set(CPACK_PACKAGE_CONTACT "syncd maintainers <maintainers@users.noreply.a-seed-947624c1.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX "${CMAKE_INSTALL_PREFIX}")
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/prepare_tree.cmake")
set(CPACK_THREADS 0)

set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL daemon client client-dev server server-dev python trainer)
if(SYNCD_HAS_CUDA)
  list(APPEND CPACK_COMPONENTS_ALL trainer-cuda)
endif()
if(SYNCD_HAS_CLUSTER)
  list(APPEND CPACK_COMPONENTS_ALL cluster)
endif()

# ---- What they are ---------------------------------------------------------------------------------
# Both formats make the first line the summary, and want lines below 80 columns.
set(_what "syncd decides, for every worker of a data-parallel training job and at every
iteration, whether it goes on or waits, by one of many synchronization
policies. It carries control messages only: parameters and gradients stay on
whatever the trainer already uses.
")
macro(syncd_package component deb rpm summary text)
  string(TOUPPER "${component}" _COMPONENT)
  set(_deb_${component} "${deb}")
  set(_rpm_${component} "${rpm}")
  set(CPACK_DEBIAN_${_COMPONENT}_PACKAGE_NAME "${deb}")
  set(CPACK_RPM_${component}_PACKAGE_NAME "${rpm}")
  set(CPACK_COMPONENT_${_COMPONENT}_DISPLAY_NAME "${summary}")
  set(CPACK_COMPONENT_${_COMPONENT}_DESCRIPTION "${summary}\n${_what}\n${text}")
  string(SUBSTRING "${summary}" 0 1 _first)
  string(TOUPPER "${_first}" _first)
  string(REGEX REPLACE "^." "${_first}" _summary "${summary}") # as rpm wants it, and Debian does not
  set(CPACK_RPM_${component}_PACKAGE_SUMMARY "${_summary}")
  set(CPACK_RPM_${component}_PACKAGE_DESCRIPTION "${_what}\n${text}")
endmacro()
syncd_package(daemon syncd syncd "coordination daemon for data-parallel training"
"This package has the daemon as a service, and syncctl, which tells who is
slow, who waits for whom, and what happened.")
syncd_package(client libsyncclient${SYNCD_SOVERSION} libsyncclient${SYNCD_SOVERSION}
  "client library of the training coordinator syncd"
"This package has the library through which a trainer follows the daemon's
decisions.")
syncd_package(client-dev libsyncclient-dev libsyncclient-devel
  "client library of the training coordinator syncd - development"
"This package has the headers, the static library, and the files for
pkg-config and CMake.")
syncd_package(server libsyncd${SYNCD_SOVERSION} libsyncd${SYNCD_SOVERSION}
  "training coordinator syncd as a library"
"This package has the daemon as a library, for programs that carry it in
themselves and run no service.")
syncd_package(server-dev libsyncd-dev libsyncd-devel
  "training coordinator syncd as a library - development"
"This package has the header, the static library, and the files for pkg-config
and CMake.")
syncd_package(python python3-syncd python3-syncd
  "Python module for the training coordinator syncd"
"This package has the module syncd, with calls for asyncio and an adapter for
PyTorch.")
syncd_package(trainer syncd-reference-trainer syncd-reference-trainer
  "trainer that compares synchronization policies"
"This package has a program that trains a linear model, a matrix factorization
or a small convolutional network with several workers under several policies,
and reports what each policy cost and gained.")
syncd_package(trainer-cuda syncd-reference-trainer-cuda syncd-reference-trainer-cuda
  "trainer that compares synchronization policies - CUDA"
"This package has the trainer's backend for NVIDIA GPUs. It takes a driver,
and the libraries of the CUDA toolkit with which it was built.")
syncd_package(cluster syncd-cluster syncd-cluster
  "training coordinator syncd on several machines"
"This package has the part of the daemon that speaks to etcd, with gRPC.")

# ---- The documents that every package has ----------------------------------------------------------
set(_documents "${CMAKE_CURRENT_BINARY_DIR}/documents")
if(SYNCD_GZIP)
  file(COPY "${CMAKE_CURRENT_SOURCE_DIR}/changelog" DESTINATION "${_documents}")
  execute_process(COMMAND "${SYNCD_GZIP}" -9nkf "${_documents}/changelog")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/changelog")
foreach(_component IN LISTS CPACK_COMPONENTS_ALL)
  # An rpm has its changelog inside, and may call a package otherwise.
  if(CMAKE_INSTALL_LIBDIR STREQUAL "lib64")
    set(_folder "${CMAKE_INSTALL_DATADIR}/doc/${_rpm_${_component}}")
  else()
    set(_folder "${CMAKE_INSTALL_DATADIR}/doc/${_deb_${_component}}")
    install(FILES "${_documents}/changelog.gz" DESTINATION "${_folder}" COMPONENT ${_component}
      RENAME changelog.Debian.gz EXCLUDE_FROM_ALL)
    # What lintian says of all of them, and of one, with the answers.
    set(_answers "")
    foreach(_source IN ITEMS all "${_deb_${_component}}")
      if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/deb/${_source}.lintian-overrides")
        file(READ "${CMAKE_CURRENT_SOURCE_DIR}/deb/${_source}.lintian-overrides" _text)
        string(APPEND _answers "${_text}")
      endif()
    endforeach()
    file(WRITE "${_documents}/overrides/${_deb_${_component}}" "${_answers}")
    install(FILES "${_documents}/overrides/${_deb_${_component}}" COMPONENT ${_component}
      DESTINATION "${CMAKE_INSTALL_DATADIR}/lintian/overrides" EXCLUDE_FROM_ALL)
  endif()
  syncd_install_for_packages("${_folder}" ${_component} copyright)
endforeach()

# ---- Python ----------------------------------------------------------------------------------------
# Beside pip's way (bindings/python), which a virtual environment wants.
set(SYNCD_PYTHON_DIR "lib/python3/dist-packages" CACHE STRING "Where python3-syncd has its module")
mark_as_advanced(SYNCD_PYTHON_DIR)
set(_python "${PROJECT_SOURCE_DIR}/bindings/python")
install(DIRECTORY "${_python}/src/syncd" DESTINATION "${SYNCD_PYTHON_DIR}" COMPONENT python
  EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
configure_file(cpack/METADATA.in "${CMAKE_CURRENT_BINARY_DIR}/METADATA" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/METADATA" cpack/entry_points.txt COMPONENT python EXCLUDE_FROM_ALL
  DESTINATION "${SYNCD_PYTHON_DIR}/syncd-${PROJECT_VERSION}.dist-info")

include(cpack/deb.cmake)
include(cpack/rpm.cmake)
include(CPack)
