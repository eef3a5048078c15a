// TurnBuffers: the buffers of one model for each virtual rank of this process (job/virtual_ranks.h), such as
// BatchNorm's running statistics. Each virtual rank has the values that a process of its own would have.
//
//   TurnBuffers buffers(tensors, group, {0, 1}, /*broadcast=*/true);
//   buffers.begin_round();
//   buffers.begin_turn(0);
//   buffers.before_forward();                // as virtual rank 0's were before its forward of this number
//   ...
//   buffers.end_turn(0);
//   buffers.end_round();                     // the model has those of this process's first virtual rank
//
// Broadcast  In the first turn of a process each such forward is a broadcast from process 0. Later turns use
//            the values received then.
// Loading    Buffers that the program changes between rounds count for all virtual ranks.
// Fails      InvalidArgument: a virtual rank runs more forwards in its turn than its process's first one.
// Cost       one copy of the buffers for each virtual rank and forward, if a process has several virtual
//            ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

class TurnBuffers {
 public:
  // `virtual_ranks` are those of this process. `broadcast`: training forwards begin with virtual rank 0's
  // buffers.
  TurnBuffers(std::vector<at::Tensor> buffers, ProcessGroup group, std::vector<int> virtual_ranks,
              bool broadcast);

  void begin_round();
  void begin_turn(int virtual_rank);
  // Called before a training forward that is averaged. Collective in the first turn.
  void before_forward();
  void end_turn(int virtual_rank);
  void end_round();

  // Copies of a virtual rank's buffers, in the order of construction; and back. Between rounds only.
  std::vector<at::Tensor> state(int virtual_rank) const;
  void load(int virtual_rank, const std::vector<at::Tensor>& values);

 private:
  using Values = std::vector<at::Tensor>;
  bool is_several() const { return virtual_ranks_.size() > 1; }
  Values places() const;
  Values copies() const;
  void give(const Values& values) const;

  const Values buffers_;  // the model's
  const ProcessGroup group_;
  const std::vector<int> virtual_ranks_;
  const bool broadcast_;
  std::map<int, Values> own_;  // by virtual rank, if there are several
  std::vector<Values> roots_;  // virtual rank 0's buffers before each forward of this round
  std::size_t forwards_ = 0;   // number of forwards in this turn
  bool is_first_turn_ = false;
};

}  // namespace lockstep
