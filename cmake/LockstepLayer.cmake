# lockstep_layer(NAME LIBRARY core|torch [SOURCES ...] [TESTS ...] [RANK_TESTS ...])
#
# Adds one room to lockstep_core (above the line: no libtorch) or to lockstep (adds libtorch). TESTS run in one process
# (GoogleTest); RANK_TESTS are written for one rank and started as several processes by testing/ranks.h. All tests of one
# library share two binaries, because linking libtorch and its headers is what costs time.
function(lockstep_layer name)
  cmake_parse_arguments(ARG "" "LIBRARY" "SOURCES;TESTS;RANK_TESTS" ${ARGN})
  if(ARG_LIBRARY STREQUAL "core")
    set(target lockstep_core)
  elseif(ARG_LIBRARY STREQUAL "torch")
    if(NOT LOCKSTEP_WITH_TORCH)
      return()
    endif()
    set(target lockstep)
  else()
    message(FATAL_ERROR "lockstep_layer(${name}): LIBRARY must be core or torch")
  endif()
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(TRANSFORM ARG_TESTS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(TRANSFORM ARG_RANK_TESTS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(${target} PRIVATE ${ARG_SOURCES})
  set_property(GLOBAL APPEND PROPERTY ${target}_TESTS ${ARG_TESTS})
  set_property(GLOBAL APPEND PROPERTY ${target}_RANK_TESTS ${ARG_RANK_TESTS})
endfunction()
