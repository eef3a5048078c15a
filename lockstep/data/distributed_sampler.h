// DistributedSampler tells each rank which items of a data set are its own in this epoch, and in what order.
//
//   DistributedSampler sampler(train.size());               // this rank of the job; shuffled, seed 0
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     sampler.set_epoch(epoch);                             // another order; without it every epoch is the same
//     for (const auto index : sampler.indices()) ...        // or give the sampler to make_data_loader()
//   }
//
// The order is that of Python's torch.utils.data.DistributedSampler, index for index: the permutation of a generator seeded
// with seed + epoch, the same on every rank; its head repeated at its end until the number of items divides evenly (or its
// tail cut, with drop_last); then rank r takes every num_replicas-th item from the r-th on. All ranks get equally many.
//
// Resuming    state() after batch k, load_state() in a new process and set_epoch() with the state's epoch: the next pass
//             starts with batch k + 1. What counts as consumed is what a loader has handed out, not what it has prefetched.
// Threads     one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

struct DistributedSamplerOptions {
  std::optional<int> num_replicas = {};  // default: get_world_size(), which needs init_process_group()
  std::optional<int> rank = {};          // default: get_rank()
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same on every rank
  bool drop_last = false;
};

// Where a sampler stands, and of what it is the sampler. Plain numbers, to be saved with a checkpoint.
struct DistributedSamplerState {
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // how many of this rank's indices have been consumed; the same on every rank

  std::int64_t dataset_size = 0;
  int num_replicas = 1;
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool drop_last = false;

  bool operator==(const DistributedSamplerState&) const = default;
};

class DistributedSampler {
 public:
  // Throws InvalidArgument for a negative size, num_replicas below 1 and a rank outside of it.
  explicit DistributedSampler(std::int64_t dataset_size, const DistributedSamplerOptions& options = {});

  // Chooses the order. Another epoch than the present one starts at its beginning. Throws InvalidArgument when negative.
  void set_epoch(std::int64_t epoch);
  std::int64_t epoch() const { return state_.epoch; }

  // How many indices each rank gets in an epoch.
  std::int64_t size() const;

  // All of this rank's indices of this epoch, consumed or not.
  std::vector<std::int64_t> indices() const;

  const DistributedSamplerState& state() const { return state_; }

  // Throws InvalidArgument, naming both values, when `state` belongs to another data set, number of replicas, seed, shuffle or
  // drop_last, because the order would be another one; or when its position lies outside of the epoch.
  void load_state(const DistributedSamplerState& state);

  // For loaders. A pass over indices() starts at the number that start_pass() returns: 0, but once after load_state() the saved
  // position. advance() counts what has been handed to the program.
  std::int64_t start_pass();
  void advance(std::int64_t count);

 private:
  int rank_;
  DistributedSamplerState state_;
  bool resumes_ = false;  // load_state() was called and no pass has started since
};

}  // namespace lockstep
