# Finds libtorch's headers and libraries itself: Torch's own config file stops on a CUDA build of libtorch where no CUDA
# toolkit is installed. Used by our build and, installed, by find_package(Lockstep).
#
#   lockstep_find_torch(ERROR [HINT <folder>] [EXACT_MINOR <2.13>])
#
# defines the target lockstep::torch and sets LOCKSTEP_TORCH_VERSION, LOCKSTEP_TORCH_ROOT, LOCKSTEP_TORCH_HAS_CUDA; or sets ERROR
# to a message of two lines. The first libtorch in this order is taken: one that find_package(Torch) has found, Torch_DIR, CMAKE_PREFIX_PATH
# (CMake variables before environment variables), HINT, the system's own. A prefix may be .../torch, .../torch/share/cmake or
# .../torch/share/cmake/Torch.

set(LOCKSTEP_TORCH_OLDEST 2.11)
set(LOCKSTEP_TORCH_NEWEST 2.14)

function(lockstep_find_torch error_variable)
  cmake_parse_arguments(ARG "" "EXACT_MINOR" "HINT" ${ARGN})
  set(${error_variable} "" PARENT_SCOPE)
  _lockstep_torch_root(root ${ARG_HINT})
  if(NOT root)
    string(CONCAT message
      "Lockstep needs libtorch ${LOCKSTEP_TORCH_OLDEST} to ${LOCKSTEP_TORCH_NEWEST} and found none.\n"
      "Run scripts/setup (it puts one into .deps/venv), or set Torch_DIR to the folder with TorchConfig.cmake, "
      "or set CMAKE_PREFIX_PATH to libtorch's folder.")
    set(${error_variable} "${message}" PARENT_SCOPE)
    return()
  endif()
  _lockstep_torch_check(message ${root} "${ARG_EXACT_MINOR}" version)
  if(message)
    set(${error_variable} "${message}" PARENT_SCOPE)
    return()
  endif()
  _lockstep_torch_target(${root} has_cuda)
  set(LOCKSTEP_TORCH_ROOT ${root} PARENT_SCOPE)
  set(LOCKSTEP_TORCH_HAS_CUDA ${has_cuda} PARENT_SCOPE)
  set(LOCKSTEP_TORCH_VERSION ${version} PARENT_SCOPE)
endfunction()

# Sets ROOT to the first folder with libtorch's headers below include/, or to nothing.
function(_lockstep_torch_root root_variable)
  string(REPLACE ":" ";" environment "$ENV{Torch_DIR}:$ENV{CMAKE_PREFIX_PATH}")
  if(Torch_FOUND)
    list(APPEND prefixes ${TORCH_INSTALL_PREFIX})
  endif()
  list(APPEND prefixes ${Torch_DIR} ${CMAKE_PREFIX_PATH} ${environment} ${ARGN} /usr/local /usr)
  foreach(prefix IN LISTS prefixes)
    string(REGEX REPLACE "/(share|lib|lib/[^/]+)/cmake(/[^/]*)?/?$" "" root "${prefix}")
    if(EXISTS ${root}/include/torch/csrc/api/include/torch/version.h)
      set(${root_variable} ${root} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${root_variable} "" PARENT_SCOPE)
endfunction()

# Reads the version from the headers and compares it; reads the C++ ABI from a symbol of libc10.
function(_lockstep_torch_check message_variable root exact_minor version_variable)
  set(numbers "")
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${root}/include/${header})
      file(STRINGS ${root}/include/${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX MATCHALL "[0-9]+" found "${lines}")
      list(APPEND numbers ${found})
    endif()
  endforeach()
  list(SUBLIST numbers 0 3 numbers)
  list(JOIN numbers "." version)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  set(${version_variable} "${version}" PARENT_SCOPE)
  set(message "")
  if(exact_minor AND NOT minor VERSION_EQUAL exact_minor)
    string(CONCAT message "This Lockstep was built against libtorch ${exact_minor}; ${root} holds libtorch ${version}.\n"
      "Set Torch_DIR or CMAKE_PREFIX_PATH to a libtorch ${exact_minor}, or build Lockstep against libtorch ${minor}.")
  elseif(minor VERSION_LESS LOCKSTEP_TORCH_OLDEST OR minor VERSION_GREATER LOCKSTEP_TORCH_NEWEST)
    string(CONCAT message "${root} holds libtorch ${version}; Lockstep works with ${LOCKSTEP_TORCH_OLDEST} to "
      "${LOCKSTEP_TORCH_NEWEST}.\nSet Torch_DIR or CMAKE_PREFIX_PATH to one of these, or run scripts/setup.")
  else()
    find_library(c10 c10 PATHS ${root}/lib ${root}/lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH NO_CACHE)
    if(c10)
      file(STRINGS ${c10} symbol REGEX "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_string" LIMIT_COUNT 1)
    endif()
    if(NOT symbol)
      string(CONCAT message "${root}: libc10.so is missing or was built with the C++ ABI of before 2015.\n"
        "Take a libtorch with _GLIBCXX_USE_CXX11_ABI=1 (all official builds since 2.7).")
    endif()
  endif()
  set(${message_variable} "${message}" PARENT_SCOPE)
endfunction()

# The GPU libraries of a CUDA build register themselves when loaded and nothing refers to their symbols: they are named with
# --no-as-needed, and what they need in turn (the toolkit's libraries) is left to the loader.
function(_lockstep_torch_target root has_cuda_variable)
  set(folders ${root}/lib ${root}/lib/${CMAKE_LIBRARY_ARCHITECTURE})
  foreach(name torch torch_cpu c10)
    find_library(library ${name} PATHS ${folders} NO_DEFAULT_PATH NO_CACHE REQUIRED)
    list(APPEND libraries ${library})
    unset(library)
  endforeach()
  foreach(name torch_cuda c10_cuda)
    find_library(library ${name} PATHS ${folders} NO_DEFAULT_PATH NO_CACHE)
    if(library)
      string(APPEND gpu ",${library}")
    endif()
    unset(library)
  endforeach()
  set(${has_cuda_variable} OFF PARENT_SCOPE)
  if(gpu)
    set(${has_cuda_variable} ON PARENT_SCOPE)
    list(PREPEND libraries "-Wl,--push-state,--no-as-needed${gpu},--pop-state" -Wl,--allow-shlib-undefined)
  endif()
  # The wheels of libtorch for CUDA export parts of std::filesystem that do not fit the system's libstdc++. A program takes the first that it
  # finds, and must not take those: going through a folder ends in SIGSEGV (seen with 2.11).
  list(PREPEND libraries -Wl,--push-state,--no-as-needed,-lstdc++,--pop-state)
  add_library(lockstep::torch INTERFACE IMPORTED GLOBAL)
  set_target_properties(lockstep::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${root}/include;${root}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${libraries}")
endfunction()
