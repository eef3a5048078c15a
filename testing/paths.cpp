#include "testing/paths.h"

namespace lockstep::testing {

std::string source_folder() { return LOCKSTEP_SOURCE_DIR; }

std::string python_program() { return LOCKSTEP_PYTHON; }

std::string gloo_module() { return LOCKSTEP_GLOO_MODULE; }

}  // namespace lockstep::testing
