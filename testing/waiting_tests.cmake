# Read by CTest behind the list of tests: those whose ranks only wait take one of the two slots that a core has (tests/CMakeLists.txt).
foreach(test IN LISTS lockstep_core_ranks_tests_TESTS)
  if(test MATCHES "^(Pause|Waiting)/|^Rendezvous/AnotherSecret|/.*ThatDoesNotCome")
    set_tests_properties("${test}" PROPERTIES PROCESSORS 1)
  endif()
endforeach()

# Threads of OpenMP that wait for each other sleep. By default they spin, which takes a core from the tests beside them: a test of 0.6 s of
# processor time then takes 12. All that a test starts inherits this.
if(NOT DEFINED ENV{OMP_WAIT_POLICY})
  set(ENV{OMP_WAIT_POLICY} passive)
endif()
