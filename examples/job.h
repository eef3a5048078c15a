// How the examples are started: under a launcher, alone, or with `--spawn N`, which starts N ranks itself.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "lockstep/base/exit_code.h"
#include "lockstep/job/spawn.h"

// Thrown in every rank when the job was asked to stop and its state is saved.
struct AskedToStop : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs `act`. Answers the exit code of the program that does nothing else, and says what went wrong.
template <typename Act> int exit_code_of(const Act& act) {
  try {
    act();
  } catch (const AskedToStop& stopped) {
    std::fprintf(stderr, "%s\n", stopped.what());
    return lockstep::EXIT_REQUEUE;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

// main() of an example: runs `rank` in every rank of the job. Answers the exit code.
inline int run_job(int argc, char** argv, void (*rank)()) {
  return exit_code_of([&] {
    if (argc == 3 && std::string_view(argv[1]) == "--spawn") {
      lockstep::spawn(std::atoi(argv[2]),
                      [&](int) { rank(); });  // the N processes run main again, up to here
    } else {
      rank();
    }
  });
}
