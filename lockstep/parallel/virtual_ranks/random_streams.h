// RandomStreams: one stream of libtorch's default CPU random numbers for each virtual rank of this process,
// and one for code outside of their turns.
//
//   RandomStreams streams;
//   streams.seed(rank_seeds);      // or not: then all begin where the default generator stands
//   streams.enter(2);              // the default generator is virtual rank 2's
//   ...
//   streams.leave(2);              // and the process's again
// It does not communicate. virtual_ranks.h calls it, and compares the origins of all processes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>

namespace lockstep {

class RandomStreams {
 public:
  enum class Origin { COPIED, SEEDED, LOADED };

  // How the streams began.
  Origin origin() const { return origin_; }
  bool has(int virtual_rank) const { return streams_.contains(virtual_rank); }
  void seed(int virtual_rank, std::uint64_t seed);
  // The stream begins at the present state of the default generator, unless it has begun before.
  void begin(int virtual_rank);

  void enter(int virtual_rank);
  void leave(int virtual_rank);

  // Called between turns. Returns a ByteTensor, as at::Generator::get_state() does.
  at::Tensor state(int virtual_rank) const { return streams_.at(virtual_rank).clone(); }
  void load(int virtual_rank, const at::Tensor& state);
  void clear();

  static at::Tensor default_state();

 private:
  Origin origin_ = Origin::COPIED;
  std::map<int, at::Tensor> streams_;
  at::Tensor outside_;  // the process's own state, during a turn
};

}  // namespace lockstep
