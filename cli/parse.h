// Reading a command's options with CLI11, as all our commands do it.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

// Into what was added to `app`. Returns the exit code if nothing is left to do (--help was printed);
// UsageError for a mistake.
std::optional<int> parse(CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
