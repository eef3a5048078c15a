// Reads a command's options with CLI11, the same way for all commands.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

// Stores the options in the variables that were added to `app`. Returns the exit code if nothing is left to
// do (--help was printed). UsageError for a mistake.
std::optional<int> parse(CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
