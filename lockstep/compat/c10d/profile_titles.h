// Names of calls in torch's profiles: "lockstep:all_reduce".
#pragma once

#include <string>

namespace lockstep::compat::torch_backend {

// The text lives as long as the process. `verb` is a literal.
const char* profile_title(const std::string& backend, const char* verb);

}  // namespace lockstep::compat::torch_backend
