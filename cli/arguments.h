// Separates the command line of `lockstep run` and `lockstep deepspeed` into our options and the user's
// program, before any parser sees it. The program's own arguments may look like ours. Pure.
//
//   run -n 4 --no-prefix ./train --epochs 2      ours: -n 4 --no-prefix      program: ./train --epochs 2
//   run -n 4 -- ./train                          the same, for programs after options that take no value
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::cli {

// A mistake in the command line: exit code 64.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Option {
  std::string name;    // "--log-dir"; underscores count as dashes
  std::string letter;  // "-n", or empty
  bool takes_value = false;
};

struct Arguments {
  std::vector<std::string> options;  // long names only, values as entries of their own
  std::vector<std::string> program;  // empty if none was given
};

// Throws UsageError for an option that is not in `known`, with the nearest known name, and for a program that
// starts with '-'.
// `command` is what messages call it.
Arguments split_arguments(std::span<const std::string> arguments, std::span<const Option> known,
                          const char* command = "lockstep run");

}  // namespace lockstep::cli
