# Warnings and hardening of our own targets; nothing here touches a consumer's flags.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # It caches files with precompiled headers only when told that these may define macros, __DATE__ and __TIME__.
  set(CMAKE_CXX_COMPILER_LAUNCHER /usr/bin/env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

# __FILE__ (in assertions of the tests, and what libtorch's macros keep) starts at this folder: a build holds no path of the machine that
# made it, and the compiler's cache knows a file again in another clone.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)

# g++ collects its garbage whenever its memory has doubled, which finds little: an eighth of the time of a file with libtorch's headers.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=300>)

add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # g++ 12 sees overlaps in std::string that are not there (its bug 105651)
  -fstack-protector-strong $<$<BOOL:${LOCKSTEP_WARNINGS_AS_ERRORS}>:-Werror>)
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    $<IF:$<CONFIG:Release>,-g1,-g>)  # lines are all that a report's stacks need, and a quarter of the time is saved
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # g++ 12 loses track in instrumented code
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  if(LOCKSTEP_SANITIZE STREQUAL "thread")
    add_compile_options(-Wno-tsan)  # it does not know fences; they only add ordering
  endif()
else()
  target_compile_definitions(lockstep_flags INTERFACE $<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
endif()
if(LOCKSTEP_UNITY)  # what g++ says of local types in any file that is included
  target_compile_options(lockstep_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
target_link_options(lockstep_flags INTERFACE -Wl,-z,relro,-z,now)

# lockstep_precompile(TARGET PRIVATE HEADER... | REUSE_FROM OTHER): libtorch's headers are most of the time that a file with libtorch takes,
# the standard library's and GoogleTest's a quarter of what other tests take. A file still includes what it needs: it is built without
# precompiled headers by -DLOCKSTEP_PRECOMPILE=OFF. A file with compile options of its own (-mavx2, -fopenmp) sets
# SKIP_PRECOMPILE_HEADERS: g++ does not take what was compiled without them and would read all of these headers instead (check_tests).
option(LOCKSTEP_PRECOMPILE "Precompile the headers of libtorch, and of GoogleTest" ON)
function(lockstep_precompile target)
  if(LOCKSTEP_PRECOMPILE)
    target_precompile_headers(${target} ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # for ccache
  endif()
endfunction()

# lockstep_program(TARGET): the same for a program of one or a few files. All of them share one set of precompiled headers, which
# lockstep_program_headers() makes, in the project's own folder: there every configuration has them at one place for the compiler's cache.
function(lockstep_program target)
  if(TARGET lockstep_program_headers)
    lockstep_precompile(${target} REUSE_FROM lockstep_program_headers)
  endif()
endfunction()

function(lockstep_program_headers)
  if(LOCKSTEP_PRECOMPILE AND LOCKSTEP_WITH_TORCH)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/program_headers.cpp CONTENT "")
    add_library(lockstep_program_headers OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/program_headers.cpp)
    set_target_properties(lockstep_program_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(lockstep_program_headers PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIE})  # as programs are compiled
    target_link_libraries(lockstep_program_headers PRIVATE lockstep lockstep_flags)
    lockstep_precompile(lockstep_program_headers PRIVATE ${LOCKSTEP_TORCH_HEADERS})
  endif()
endfunction()
