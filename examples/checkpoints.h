// Checkpoints of the examples that train: their three options, and when they save.
//
//   lockstep run -n 2 --max-restarts 3 PROGRAM --checkpoint-dir runs/7 --checkpoint-every 100 --resume
//
//   Checkpoints checkpoints(options);                   // without --checkpoint-dir it does nothing
//   checkpoints.state.add("model", net).add("optimizer", optimizer).add_value("epoch", epoch);
//   checkpoints.resume();
//   for (...) {
//     train_step();
//     checkpoints.after_step();
//   }
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/job.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/job/stop_signals.h"

struct CheckpointOptions {
  std::string dir;
  int every = 200;  // steps
  bool resume = false;
};

class Checkpoints {
 public:
  explicit Checkpoints(const CheckpointOptions& options) : options_(options) {
    state.add_value("step", step_).add_random_state();
    if (!options.dir.empty()) stop_.emplace(std::vector<int>{SIGTERM, SIGUSR1});
  }

  lockstep::CheckpointState state;  // what a run is made of, beside its step and the random numbers

  // With --resume: what the newest checkpoint is called, if there is one.
  std::string resume() {
    if (!options_.resume) return "";
    const auto loaded = lockstep::load_checkpoint(options_.dir, state, {.missing_ok = true});
    return loaded ? loaded->path : "";
  }

  // After each step, on every rank. Saves in the background every so often, and at once if a rank was asked
  // to stop; then it throws AskedToStop.
  void after_step() {
    ++step_;
    if (!stop_) return;
    const lockstep::SaveCheckpointOptions how{.step = step_, .keep_last = 3};
    if (stop_->requested_on_any_rank())
      throw AskedToStop("asked to stop; saved " + lockstep::save_checkpoint(options_.dir, state, how));
    if (step_ % options_.every == 0) lockstep::save_checkpoint_async(options_.dir, state, how);
  }

  std::int64_t step() const { return step_; }  // how many are done

 private:
  CheckpointOptions options_;
  std::int64_t step_ = 0;
  std::optional<lockstep::StopSignals> stop_;
};

// main() of an example that trains and has no other options: runs `train` in every rank. Answers the exit
// code.
int run_training(int argc, char** argv, void (*train)(const CheckpointOptions&));
