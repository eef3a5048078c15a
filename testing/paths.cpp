#include "testing/paths.h"

namespace lockstep::testing {

std::string source_folder() { return LOCKSTEP_SOURCE_DIR; }

std::string python_program() { return LOCKSTEP_PYTHON; }

std::string run_case_program() { return LOCKSTEP_RUN_CASE; }

std::string warm_python_program() { return LOCKSTEP_WARM_PYTHON; }

std::string gloo_module() { return LOCKSTEP_GLOO_MODULE; }

}  // namespace lockstep::testing
