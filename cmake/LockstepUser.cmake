# lockstep_also_as_user(NAME COMMAND...): where root configures the build, registers a test a second time as NAME.as_user, run by
# tools/as_user as an ordinary user with usual limits. Sets NAME_and_user to the names of both, for set_tests_properties(). An ordinary
# user's build has each test once.
execute_process(COMMAND id -u OUTPUT_VARIABLE LOCKSTEP_USER_ID OUTPUT_STRIP_TRAILING_WHITESPACE)
# The Python of root's home is nobody else's to run.
find_program(LOCKSTEP_EVERYBODYS_PYTHON python3 PATHS /usr/bin /usr/local/bin NO_DEFAULT_PATH)

function(lockstep_also_as_user name)
  set(both ${name})
  if(LOCKSTEP_USER_ID STREQUAL "0" AND NOT LOCKSTEP_SANITIZE)
    set(command ${ARGN})
    list(GET command 0 program)
    if(program STREQUAL "${Python3_EXECUTABLE}" AND LOCKSTEP_EVERYBODYS_PYTHON)
      list(POP_FRONT command)
      list(PREPEND command ${LOCKSTEP_EVERYBODYS_PYTHON})
    endif()
    add_test(NAME ${name}.as_user COMMAND ${PROJECT_SOURCE_DIR}/tools/as_user ${command})
    set_tests_properties(${name}.as_user PROPERTIES SKIP_RETURN_CODE 77)
    list(APPEND both ${name}.as_user)
  endif()
  set(${name}_and_user ${both} PARENT_SCOPE)
endfunction()
