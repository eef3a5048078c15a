// Seconds of a save with fsync, of a load, and of the training's stall by a save in the background: 24
// float32 tensors of 2048 x 2048, 100.7 million parameters, that all ranks hold. Medians of five; the peers
// do the same in bench/peers/checkpoint.py.
//
//   lockstep run -n 2 build/bench/checkpoint [FOLDER]
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/job/job.h"

namespace {

constexpr int TENSORS = 24;
constexpr std::int64_t SIDE = 2048;
constexpr int ROUNDS = 5;

// From when all ranks begin to when the last is done.
double seconds_of(const std::function<void()>& act) {
  lockstep::comm::barrier(lockstep::world()).wait();
  const auto start = std::chrono::steady_clock::now();
  act();
  lockstep::comm::barrier(lockstep::world()).wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const std::string& folder) {
  lockstep::init_process_group();
  torch::manual_seed(1);
  lockstep::CheckpointState state;
  for (int i = 0; i < TENSORS; ++i) state.add("t" + std::to_string(i), at::randn({SIDE, SIDE}));
  std::vector<double> saves, fast, loads, blocked, whole;
  int step = 0;
  // In a folder without others: the one before goes first, which is not timed, as it is not with the peers.
  const auto options = [&](bool durable) {
    if (lockstep::get_rank() == 0) std::filesystem::remove_all(folder);
    lockstep::comm::barrier(lockstep::world()).wait();
    return lockstep::SaveCheckpointOptions{.step = ++step, .durable = durable};
  };
  for (int round = 0; round < ROUNDS; ++round) {
    auto how = options(true);
    saves.push_back(seconds_of([&] { lockstep::save_checkpoint(folder, state, how); }));
    loads.push_back(seconds_of([&] { lockstep::load_checkpoint(folder, state); }));
    how = options(false);
    fast.push_back(seconds_of([&] { lockstep::save_checkpoint(folder, state, how); }));
    how = options(true);
    whole.push_back(seconds_of([&] {
      blocked.push_back(seconds_of([&] { lockstep::save_checkpoint_async(folder, state, how); }));
      lockstep::wait_for_checkpoint();
    }));
  }
  if (lockstep::get_rank() == 0) {
    std::printf(
        "{\"save\": %.4f, \"save_no_fsync\": %.4f, \"load\": %.4f, \"blocked\": %.4f, \"async_done\": "
        "%.4f}\n",
        median(saves), median(fast), median(loads), median(blocked), median(whole));
    std::filesystem::remove_all(folder);
  }
  lockstep::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  measure(argc > 1 ? argv[1] : "checkpoints");
  return 0;
}
