// TurnBuffers: the buffers of one model for each virtual rank of this process (job/virtual_ranks.h), such as
// BatchNorm's running statistics. Each virtual rank has what a process of its own would have.
//
//   TurnBuffers buffers(tensors, group, {0, 1}, /*broadcast=*/true);
//   buffers.begin_round();
//   buffers.begin_turn(0);
//   buffers.before_forward();                // virtual rank 0's, as they were before its forward of this
//   number
//   ...
//   buffers.end_turn(0);
//   buffers.end_round();                     // the model has those of this process's first virtual rank
//
// Broadcast  in the first turn of a process each such forward is a broadcast from process 0. Later turns take
//            what was received then.
// Loading    buffers that the program changes between rounds count for all virtual ranks.
// Fails      InvalidArgument: a virtual rank runs more forwards in its turn than its process's first one.
// Cost       one copy of the buffers for each virtual rank and forward, where a process has several.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

class TurnBuffers {
 public:
  // `virtual_ranks` are this process's. `broadcast`: training forwards begin with virtual rank 0's buffers.
  TurnBuffers(std::vector<at::Tensor> buffers, ProcessGroup group, std::vector<int> virtual_ranks,
              bool broadcast);

  void begin_round();
  void begin_turn(int virtual_rank);
  // A forward in training that is averaged. Collective in the first turn.
  void before_forward();
  void end_turn(int virtual_rank);
  void end_round();

  // Between rounds: copies of a virtual rank's buffers, in the order of construction; and back.
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
  std::map<int, Values> own_;  // by virtual rank, where there are several
  std::vector<Values> roots_;  // virtual rank 0's, before each forward of this round
  std::size_t forwards_ = 0;   // of this turn
  bool is_first_turn_ = false;
};

}  // namespace lockstep
