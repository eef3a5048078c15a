// Opens the module of Gloo (gloo/module.h), beside any other Gloo in the process. No part of it is in the
// process before that.
//
//   gloo::Module& module = gloo::open_library();
//   std::cout << gloo::find_library() << ": " << module.library() << "\n";
//
// Isolated    libtorch carries a newer Gloo whose symbols are visible to all libraries. The module and its
//             libgloo look for symbols in each other first (RTLD_DEEPBIND), and show none to other libraries
//             (RTLD_LOCAL). So neither Gloo ever calls the other.
// Where       module_file.h. Sanitizers do not permit such isolation, so a build with one has no module.
// Throws      InvalidArgument that says what to install, or why the module cannot be loaded.
#pragma once

#include <string>

#include "lockstep/comm/backends/gloo/module.h"

namespace lockstep::gloo {

// The path of the module; empty if there is none.
std::string find_library();

// Returns the same module for the rest of the process. Threads: any.
Module& open_library();

// Opens the module in this file. Throws for an empty path and says what to install.
Module& open_library_at(const std::string& path);

}  // namespace lockstep::gloo
