# penstock_library(NAME SRCS a.cc ... DEPS x ...): a static library of ours.
# Links are PUBLIC only for what its headers need, named in PUBLIC_DEPS; DEPS stay private.
function(penstock_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;PUBLIC_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC_DEPS} PRIVATE ${ARG_DEPS} penstock_warnings)
endfunction()

# penstock_binary(NAME SRCS ... DEPS ...): an executable of ours, put into <build>/bin.
function(penstock_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} penstock_warnings)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# penstock_test(NAME SRCS ... DEPS ... [LABELS unit|integration|gpu|slow|fuzz] [TIMEOUT s]):
# one gtest binary per test file; PENSTOCK_TEST_DATA points at tests/data. The label 'tsan' makes it
# part of the target tsan_tests, what the thread sanitizer's run builds (engine and router only).
add_custom_target(tsan_tests)
function(penstock_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main penstock_warnings)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if("tsan" IN_LIST ARG_LABELS)
    add_dependencies(tsan_tests ${name})
    if(PENSTOCK_SANITIZE STREQUAL "thread")
      target_link_libraries(${name} PRIVATE penstock_tsan_grpc)
    endif()
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "PENSTOCK_TEST_DATA=${CMAKE_SOURCE_DIR}/tests/data")
endfunction()
