// Where the checkout and what the tests need lie. Only paths.cpp is compiled with these paths, so that the
// compiler's cache serves every other file of the tests in any folder.
#pragma once

#include <string>

namespace lockstep::testing {

// The checkout's folder.
std::string source_folder();

// A Python with torch, numpy and safetensors; empty where CMake found none.
std::string python_program();

// What runs a script in a copy of a Python that has imported these (python_server.py): run_case, and the
// server's program.
std::string run_case_program();
std::string warm_python_program();

// The module that loads Gloo; empty in a build without one.
std::string gloo_module();

}  // namespace lockstep::testing
