# cmake -DREADELF=readelf -DPROGRAM=FILE -P link_order_test.cmake: libstdc++ comes before libtorch among the libraries that the program needs.
# Symbols are looked for in this order, and the wheels of libtorch for CUDA export parts of std::filesystem that do not fit the
# system's libstdc++ (cmake/LockstepTorch.cmake).
execute_process(COMMAND ${READELF} -d ${PROGRAM} OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
string(FIND "${needed}" "[libstdc++.so" standard)
string(FIND "${needed}" "[libtorch" torch)
if(standard EQUAL -1 OR torch EQUAL -1 OR standard GREATER torch)
  message(FATAL_ERROR "${PROGRAM} needs, in this order:\n${needed}\nexpected libstdc++ before libtorch")
endif()
