#include "lockstep/parallel/replicas/turn_buffers.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/replicas/broadcast_tensors.h"

namespace lockstep {
namespace {

// Compares bits: a NaN equals itself.
bool is_same(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  return left.nbytes() == right.nbytes() &&
         std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

}  // namespace

TurnBuffers::TurnBuffers(std::vector<at::Tensor> buffers, ProcessGroup group, std::vector<int> virtual_ranks,
                         bool broadcast)
    : buffers_(std::move(buffers)),
      group_(std::move(group)),
      virtual_ranks_(std::move(virtual_ranks)),
      broadcast_(broadcast) {}

// Views of the buffers' memory with version counters of their own, so that a graph that saved a buffer can
// still run backward.
TurnBuffers::Values TurnBuffers::places() const {
  Values places;
  for (const at::Tensor& buffer : buffers_) places.push_back(without_repeats(buffer.variable_data()));
  return places;
}

TurnBuffers::Values TurnBuffers::copies() const {
  const c10::NoGradGuard no_grad;
  Values values;
  for (const at::Tensor& place : places()) values.push_back(place.clone());
  return values;
}

void TurnBuffers::give(const Values& values) const {
  const c10::NoGradGuard no_grad;
  const Values live = places();
  for (std::size_t i = 0; i < live.size(); ++i) live[i].copy_(values[i]);
}

void TurnBuffers::begin_round() {
  roots_.clear();
  is_first_turn_ = true;
  if (!is_several() || buffers_.empty()) return;
  const auto first = own_.find(virtual_ranks_.front());
  const Values live = places();
  const bool is_changed =
      first != own_.end() && !std::equal(live.begin(), live.end(), first->second.begin(), is_same);
  if (is_changed) own_.clear();
  for (const int v : virtual_ranks_) {
    if (!own_.contains(v)) own_.emplace(v, copies());
  }
}

void TurnBuffers::begin_turn(int virtual_rank) {
  forwards_ = 0;
  if (is_several() && !is_first_turn_ && !buffers_.empty()) give(own_.at(virtual_rank));
}

void TurnBuffers::before_forward() {
  if (!broadcast_ || buffers_.empty()) return;
  const std::size_t number = forwards_++;
  if (is_first_turn_) {
    broadcast_tensors(buffers_, group_);
    if (is_several()) roots_.push_back(copies());
    return;
  }
  if (number >= roots_.size()) {
    throw InvalidArgument(
        str("a virtual rank of process ", group_.rank(), " runs more than the ", roots_.size(),
            " forwards in training that virtual rank ", virtual_ranks_.front(),
            " ran in its turn; every virtual rank runs equally many, because each begins with "
            "virtual rank 0's buffers (or set broadcast_buffers to false)"));
  }
  give(roots_[number]);
}

void TurnBuffers::end_turn(int virtual_rank) {
  is_first_turn_ = false;
  if (is_several() && !buffers_.empty()) own_.at(virtual_rank) = copies();
}

void TurnBuffers::end_round() {
  roots_.clear();
  if (is_several() && !buffers_.empty()) give(own_.at(virtual_ranks_.front()));
}

std::vector<at::Tensor> TurnBuffers::state(int virtual_rank) const {
  const auto found = own_.find(virtual_rank);
  if (virtual_rank == virtual_ranks_.front() || found == own_.end()) return copies();
  Values values;
  for (const at::Tensor& value : found->second) values.push_back(value.clone());
  return values;
}

void TurnBuffers::load(int virtual_rank, const std::vector<at::Tensor>& values) {
  if (virtual_rank == virtual_ranks_.front()) give(values);
  if (!is_several()) return;
  for (const int v : virtual_ranks_) {
    if (!own_.contains(v)) own_.emplace(v, copies());
  }
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values.size(); ++i) own_.at(virtual_rank)[i].copy_(values[i]);
}

}  // namespace lockstep
