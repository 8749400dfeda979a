# Build-wide choices, applied per target: nothing here sets a global flag.
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

find_program(SYNCD_CCACHE ccache)
if(SYNCD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${SYNCD_CCACHE}")
  # Without this it compiles anew whatever uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${SYNCD_CCACHE}")
endif()

# lld links in a fraction of the time of the system's own linker, which packages are made with.
option(SYNCD_FAST_LINK "Link with lld where it is installed (the presets turn it on)" OFF)
find_program(SYNCD_LLD ld.lld)
if(SYNCD_FAST_LINK AND SYNCD_LLD)
  add_link_options($<$<LINK_LANGUAGE:C,CXX>:-fuse-ld=lld>)
endif()

set(_syncd_sanitize_flags "")
if(SYNCD_SANITIZE STREQUAL "address")
  set(_syncd_sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer)
elseif(SYNCD_SANITIZE STREQUAL "thread")
  set(_syncd_sanitize_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(SYNCD_SANITIZE)
  message(FATAL_ERROR "SYNCD_SANITIZE=${SYNCD_SANITIZE} is unknown; allowed: address, thread, or empty")
endif()

if(SYNCD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "SYNCD_FUZZ needs clang; use the preset fuzz, or CC=clang CXX=clang++")
  endif()
  list(APPEND _syncd_sanitize_flags -fsanitize=fuzzer-no-link)
endif()

# GCC's manual: with sanitizers some warnings have more false positives (here: std::regex, and GCC 12's
# "text" + std::string).
if(SYNCD_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND _syncd_sanitize_flags -Wno-maybe-uninitialized -Wno-array-bounds -Wno-restrict)
endif()

# What makes a defect harder to use for an attack. Checks of buffer sizes need an optimised build, and
# would hide from a sanitizer what it is to find.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)
set(_syncd_hardening_flags -fstack-protector-strong)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND _syncd_hardening_flags -fcf-protection)
endif()
if(NOT SYNCD_SANITIZE AND NOT SYNCD_FUZZ)
  # Some compilers have a level of their own, which must not be redefined.
  list(APPEND _syncd_hardening_flags
    "$<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE>" "$<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>")
endif()

# For a target in CUDA, too, to which the rest below does not apply.
function(syncd_harden target)
  target_compile_options(${target} PRIVATE ${_syncd_hardening_flags})
  target_link_options(${target} PRIVATE LINKER:-z,relro LINKER:-z,now)
endfunction()

# Files that stay objects of their own where CMAKE_UNITY_BUILD puts several files into one: those that a
# test replaces by its own (tests/simulation's canaries), and classes whose members are of an anonymous
# namespace, of which -Wsubobject-linkage warns in a file that is included.
function(syncd_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Language level, warnings, sanitizers, hardening and position-independent code for one of our own targets.
function(syncd_target_defaults target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF C_STANDARD 11 C_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wshadow=local>
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>
    $<$<BOOL:${SYNCD_WERROR}>:-Werror>)
  # What GCC warns of after inlining differs from version to version, and is mostly false in the standard
  # library's code: with versions that continuous integration does not use, it is shown and no error.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=array-bounds -Wno-error=stringop-overflow -Wno-error=stringop-overread
                                -Wno-error=restrict -Wno-error=maybe-uninitialized -Wno-error=free-nonheap-object>)
  endif()
  syncd_harden(${target})
  target_compile_options(${target} PRIVATE ${_syncd_sanitize_flags})
  target_link_options(${target} PRIVATE ${_syncd_sanitize_flags})
endfunction()
