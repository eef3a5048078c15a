# cmake -DLAUNCHER=lockstep -DPROGRAM=gpt2_zero -DTEXT=file -DFOLDER=folder -P gpt2_zero_test.cmake: with the article's configuration the
# loss falls (the program says so by its exit code) on one process and on two, and a second start goes on from the checkpoint.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
function(run ranks steps expected)
  execute_process(COMMAND ${LAUNCHER} deepspeed --num_gpus ${ranks} ${PROGRAM} --deepspeed --data ${TEXT} --layers 1 --width 32 --block-size 16
                          --steps ${steps} --sample 10 --checkpoints ${FOLDER}/${ranks} ${ARGN} OUTPUT_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL 0 OR NOT output MATCHES "${expected}")
    message(FATAL_ERROR "${ranks} ranks: exit code ${result}, and it printed\n${output}")
  endif()
  message(STATUS "${ranks} ranks:\n${output}")
endfunction()
run(1 40 "step 40: loss [0-9.]+, loss scale [0-9]+\n")
run(2 40 "step 40: loss [0-9.]+, loss scale [0-9]+\n")
run(2 60 "step 60: loss [0-9.]+, loss scale [0-9]+\n" --resume)
file(STRINGS ${FOLDER}/2/latest tag)
if(NOT tag STREQUAL "global_step60")
  message(FATAL_ERROR "latest says ${tag}")
endif()
