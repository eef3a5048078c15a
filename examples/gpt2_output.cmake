# cmake -DLAUNCHER=lockstep -DPROGRAM=gpt2 -DTEXT=file -P gpt2_output.cmake: on two processes the program learns something (it says so
# by its exit code), and prints the same when the activations are computed again in backward, and when each steps its part (ZeRO).
foreach(flag "" --recompute --zero)
  execute_process(COMMAND ${LAUNCHER} run -n 2 --no-logs --no-prefix ${PROGRAM} --data ${TEXT} --layers 2 --width 32 --block-size 32
                          --batch-size 4 --steps 40 --lr 3e-3 --sample 20 ${flag} OUTPUT_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL 0 OR NOT output MATCHES "step 40: loss [0-9.]+\n")
    message(FATAL_ERROR "${flag}: exit code ${result}, and it printed\n${output}")
  endif()
  if(DEFINED first AND NOT output STREQUAL first)
    message(FATAL_ERROR "it printed\n${first}\nand with ${flag}\n${output}")
  endif()
  set(first "${output}")
endforeach()
message(STATUS "the same with --recompute, with --zero and without:\n${first}")
