# One target a leaf folder: a target sees only what it links, so the include rule of docs/architecture.md holds at
# link time (tests/tidy checks the includes themselves).

# perdura_library(name [EXCLUDE files...] LINKS targets...): all .cpp of this folder but main.cpp and EXCLUDE.
function(perdura_library name)
  cmake_parse_arguments(arg "" "" "LINKS;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  foreach(file ${arg_EXCLUDE})
    list(REMOVE_ITEM sources "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  endforeach()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC perdura_options ${arg_LINKS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE perdura_options ${arg_LINKS})
  endif()
endfunction()

# perdura_test(name SOURCES files... LINKS targets... [LABELS labels...]): a doctest program, run by ctest.
function(perdura_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES} "${PROJECT_SOURCE_DIR}/tests/doctest_main.cpp")
  target_link_libraries(${name} PRIVATE perdura_options ${arg_LINKS})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 300)
endfunction()
