# Read by CTest behind the list of tests: those whose ranks only wait take one of the two slots that a core has (tests/CMakeLists.txt).
foreach(test IN LISTS lockstep_core_ranks_tests_TESTS)
  if(test MATCHES "^(Pause|Waiting)/|^Rendezvous/AnotherSecret|/.*ThatDoesNotCome")
    set_tests_properties("${test}" PROPERTIES PROCESSORS 1)
  endif()
endforeach()
