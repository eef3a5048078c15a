// How the examples are started: under a launcher, alone, or with `--spawn N`, which starts N ranks itself.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "lockstep/job/spawn.h"

// main() of an example: runs `rank` in every rank of the job. Answers the exit code.
inline int run_job(int argc, char** argv, void (*rank)()) {
  try {
    if (argc == 3 && std::string_view(argv[1]) == "--spawn") {
      lockstep::spawn(std::atoi(argv[2]),
                      [&](int) { rank(); });  // the N processes run main again, up to here
    } else {
      rank();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
