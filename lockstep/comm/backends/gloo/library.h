// Opening the module of Gloo (gloo/module.h), beside any other Gloo in the process: nothing of it is there
// before that.
//
//   gloo::Module& module = gloo::open_library();
//   std::cout << gloo::find_library() << ": " << module.library() << "\n";
//
// Isolated    libtorch carries a newer Gloo whose names are visible to all. The module and its libgloo look
//             for names among themselves first (RTLD_DEEPBIND), and show none to others (RTLD_LOCAL), so
//             neither Gloo ever calls the other.
// Where       module_file.h. Sanitizers do without such isolation, so what is built with one has no module.
// Throws      InvalidArgument that says what to install, or why the module cannot be loaded.
#pragma once

#include <string>

#include "lockstep/comm/backends/gloo/module.h"

namespace lockstep::gloo {

// The path of the module; empty: there is none.
std::string find_library();

// The same one for the rest of the process. Threads: any.
Module& open_library();

// The module in this file; of an empty path it says what to install.
Module& open_library_at(const std::string& path);

}  // namespace lockstep::gloo
