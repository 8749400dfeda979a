# Every outside library, found in one place, with the Debian/Ubuntu package that provides it, so
# that a missing one is reported with what to install. packaging/packages.txt lists the same names.
include(FindPackageHandleStandardArgs)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

macro(syncd_require name debian_package)
  find_package(${name} QUIET CONFIG)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} was not found: install ${debian_package} (apt-get install ${debian_package})")
  endif()
endmacro()

pkg_check_modules(LIBUV QUIET IMPORTED_TARGET libuv)
if(NOT LIBUV_FOUND)
  message(FATAL_ERROR "libuv was not found: install libuv1-dev (apt-get install libuv1-dev)")
endif()

find_package(OpenSSL 3 QUIET)
if(NOT OPENSSL_FOUND)
  message(FATAL_ERROR "OpenSSL 3 was not found: install libssl-dev (apt-get install libssl-dev)")
endif()

# Debian names the package FlatBuffers, upstream's newer releases Flatbuffers or flatbuffers.
find_package(FlatBuffers QUIET NAMES FlatBuffers Flatbuffers flatbuffers)
find_program(SYNCD_FLATC flatc)
if(NOT FlatBuffers_FOUND OR NOT SYNCD_FLATC)
  message(FATAL_ERROR "FlatBuffers was not found: install libflatbuffers-dev and flatbuffers-compiler")
endif()

syncd_require(RocksDB librocksdb-dev)
# syncd::rocksdb is what everything but libsyncd links. The static library makes a program that can be
# carried to another machine; it is 33 MB, which a build of many tests need not link each time.
option(SYNCD_SHARED_ROCKSDB "Link the shared RocksDB, for builds of tests" OFF)
add_library(syncd_rocksdb INTERFACE)
if(SYNCD_SHARED_ROCKSDB)
  target_link_libraries(syncd_rocksdb INTERFACE RocksDB::rocksdb-shared)
else()
  target_link_libraries(syncd_rocksdb INTERFACE RocksDB::rocksdb)
endif()
add_library(syncd::rocksdb ALIAS syncd_rocksdb)
syncd_require(fmt libfmt-dev)
syncd_require(CLI11 libcli11-dev)
syncd_require(nlohmann_json nlohmann-json3-dev)
syncd_require(tomlplusplus libtomlplusplus-dev)
syncd_require(Eigen3 libeigen3-dev)
# Chart.js 3 or later, which the trainer's reports hold.
find_file(SYNCD_CHART_JS NAMES chart.min.js Chart.min.js PATHS /usr/share/javascript/chart.js
  NO_DEFAULT_PATH)
if(NOT SYNCD_CHART_JS)
  message(FATAL_ERROR "Chart.js was not found: install libjs-chart.js (apt-get install libjs-chart.js), or say where its chart.min.js is with -DSYNCD_CHART_JS=FILE")
endif()
file(STRINGS "${SYNCD_CHART_JS}" _chart_js LIMIT_COUNT 1 REGEX "Chart.js v[3-9]")
if(NOT _chart_js)
  message(FATAL_ERROR "${SYNCD_CHART_JS} is not Chart.js 3 or later")
endif()
if(SYNCD_TESTS)
  syncd_require(GTest libgtest-dev)
  if(SYNCD_BENCHMARKS)
    syncd_require(benchmark libbenchmark-dev)
  endif()
endif()
