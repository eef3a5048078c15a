# cmake -DROOT=<libtorch> -DOUTPUT=<folder> -DCOMPILER=<c++> -P make_libtorchs.cmake: variants of the libtorch in ROOT, as far as
# finding them goes. ROOT itself is only read.
set(headers torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
file(REMOVE_RECURSE ${OUTPUT})

# Another minor version, and one without libraries.
foreach(header IN LISTS headers)
  if(EXISTS ${ROOT}/include/${header})
    file(READ ${ROOT}/include/${header} text)
    file(WRITE ${OUTPUT}/no_c10/include/${header} "${text}")
    string(REGEX REPLACE "(TORCH_VERSION_MINOR) [0-9]+" "\\1 99" text "${text}")
    file(WRITE ${OUTPUT}/other_minor/include/${header} "${text}")
  endif()
endforeach()

# A CUDA build where no toolkit is installed: its libtorch_cuda finds the toolkit's library beside it, as the wheels do.
file(MAKE_DIRECTORY ${OUTPUT}/cuda_build/lib ${OUTPUT}/toolkit)
file(CREATE_LINK ${ROOT}/include ${OUTPUT}/cuda_build/include SYMBOLIC)
file(GLOB libraries ${ROOT}/lib/*.so*)
foreach(library IN LISTS libraries)
  get_filename_component(name ${library} NAME)
  file(CREATE_LINK ${library} ${OUTPUT}/cuda_build/lib/${name} SYMBOLIC)
endforeach()
file(WRITE ${OUTPUT}/toolkit.cpp "extern \"C\" int cuda_runtime() { return 0; }")
file(WRITE ${OUTPUT}/cuda.cpp "extern \"C\" int cuda_runtime(); extern \"C\" int torch_cuda() { return cuda_runtime(); }")
foreach(command
    "-o toolkit/libcudart_of_test.so toolkit.cpp"
    "-o cuda_build/lib/libc10_cuda.so toolkit.cpp"
    "-o cuda_build/lib/libtorch_cuda.so cuda.cpp -Ltoolkit -lcudart_of_test -Wl,-rpath,$ORIGIN/../../toolkit")
  separate_arguments(command)
  execute_process(COMMAND ${COMPILER} -shared -fPIC ${command} WORKING_DIRECTORY ${OUTPUT} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
