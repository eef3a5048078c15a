// Runs real Python (torch, numpy, safetensors) for tests that compare with it, in a copy of one that has
// imported them (python_server.py). There is no skipping: without Python the test fails and says what to do.
//
//   const std::string text = run_python("import torch; print(torch.__version__)");
//   run_python(script, {folder.path()});                  // sys.argv[1:]
#pragma once

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "testing/paths.h"
#include "testing/temp_folder.h"

namespace lockstep::testing {

inline std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// What the script printed. Throws with everything it said when it fails.
inline std::string run_python(const std::string& script, const std::vector<std::string>& arguments = {}) {
  const std::string python = python_program();
  if (python.empty() || !std::filesystem::exists(python)) {
    throw std::runtime_error(
        "this test compares with Python, and \"" + python +
        "\" is not there: run scripts/setup --tests, or set LOCKSTEP_PYTHON to a Python with torch, "
        "numpy and safetensors, and configure again");
  }
  const TempFolder folder;
  std::string command = shell_quoted(run_case_program()) + " " + shell_quoted(warm_python_program()) + " " +
                        shell_quoted(folder.write("script.py", script));
  for (const std::string& argument : arguments) command += " " + shell_quoted(argument);
  command += " 2>" + shell_quoted(folder / "errors");
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start " + command);
  std::string output;
  char buffer[65536];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, count);
  if (::pclose(pipe) != 0) throw std::runtime_error("Python failed:\n" + output + folder.read("errors"));
  return output;
}

}  // namespace lockstep::testing
