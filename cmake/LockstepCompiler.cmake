# Warnings and hardening of our own targets; nothing here touches a consumer's flags.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # g++ 12 sees overlaps in std::string that are not there (its bug 105651)
  -fstack-protector-strong $<$<BOOL:${LOCKSTEP_WARNINGS_AS_ERRORS}>:-Werror>)
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  if(LOCKSTEP_SANITIZE STREQUAL "thread")
    add_compile_options(-Wno-tsan)  # it does not know fences; they only add ordering
  endif()
else()
  target_compile_definitions(lockstep_flags INTERFACE $<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
endif()
target_link_options(lockstep_flags INTERFACE -Wl,-z,relro,-z,now)
