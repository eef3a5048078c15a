// What the command lines of the examples that train have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "examples/checkpoints.h"
#include "lockstep/base/environment.h"

inline void add_checkpoint_options(CLI::App& app, CheckpointOptions& o) {
  auto* folder = app.add_option("--checkpoint-dir", o.dir, "folder for checkpoints of the whole run");
  app.add_option("--checkpoint-every", o.every, "steps from one checkpoint to the next")
      ->check(CLI::PositiveNumber)
      ->needs(folder)
      ->capture_default_str();
  app.add_flag("--resume", o.resume, "go on from the newest checkpoint there, if there is one")
      ->needs(folder);
}

// Ends the program after --help and after a mistake, which rank 0 alone explains.
inline void parse_options(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool speaks = lockstep::job_environment().rank == 0;  // once is enough
    std::exit(speaks ? app.exit(error) : error.get_exit_code());
  }
}
