// A module is a part of Lockstep that needs an optional library. Each module is a file of its own, built
// where that library is installed. It links nothing of Lockstep, and is opened on first request.
//
//   const std::string path = find_module("lockstep_gloo.so");                       // "": there is none
//   void* const entry = open_module("gloo", path, RTLD_NOW | RTLD_LOCAL, "lockstep_gloo_module_2");
//
// Where       beside the program, in lib/lockstep beside its folder, where Lockstep was built, and where it
//             was installed.
// Throws      open_module: InvalidArgument that says why the file cannot be used.
// Threads     any.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

std::string find_module(const std::string& file);
// The folders, for messages.
std::string module_folders();

// The address of the function `entry` of the module, which stays loaded for the rest of the process. `flags`
// are dlopen's.
void* open_module(std::string_view backend, const std::string& path, int flags, const char* entry);

}  // namespace lockstep
