#include "lockstep/parallel/ddp/virtual_turns.h"

#include <utility>

#include "lockstep/base/str.h"

namespace lockstep {

VirtualTurns::VirtualTurns(const VirtualRankPlan& plan, int process, std::vector<at::Tensor> parameters)
    : virtual_ranks_(plan.virtual_ranks),
      processes_(static_cast<int>(plan.shares.size())),
      first_(plan.shares[static_cast<std::size_t>(process)].first),
      sum_(std::make_shared<VirtualSum>(plan, process)),
      gradients_(std::move(parameters)) {}

std::optional<std::string> VirtualTurns::on(TurnEvent event, int virtual_rank, GradientArrivals& arrivals) {
  switch (event) {
    case TurnEvent::BEGIN_ROUND:
      sum_->begin_round();
      averaged_ = 0;
      used_.clear();
      return gradients_.begin_round();
    case TurnEvent::BEGIN_TURN: begin_turn(virtual_rank, arrivals); break;
    case TurnEvent::END_TURN: end_turn(arrivals); break;
    case TurnEvent::LEAVE_ROUND:
      gradients_.drop();
      gradients_.end_round();
      state_ = State::OUTSIDE;
      break;
    case TurnEvent::END_ROUND: gradients_.end_round(); break;
  }
  return std::nullopt;
}

void VirtualTurns::begin_turn(int virtual_rank, GradientArrivals& arrivals) {
  state_ = State::IN_TURN;
  turn_ = virtual_rank;
  sum_->begin_turn(virtual_rank);
  const std::vector<bool> used = gradients_.begin_turn(virtual_rank);
  has_kept_ = !used.empty();
  arrivals.end_step();
  arrivals.set_used(used);
}

void VirtualTurns::end_turn(GradientArrivals& arrivals) {
  if (state_ == State::IN_TURN && has_kept_) gradients_.keep(turn_, arrivals.used());
  state_ = State::OUTSIDE;
}

std::optional<std::string> VirtualTurns::begin_pass(bool averages) {
  if (state_ == State::OUTSIDE) {
    return str("backward() outside of a virtual rank's turn: this job has ", virtual_ranks_,
               " virtual ranks on ", processes_,
               " processes; run forward() and backward() in a loop over "
               "virtual_ranks() or virtual_steps()");
  }
  if (state_ == State::AVERAGED) {
    return str("another backward() in the turn of virtual rank ", turn_,
               " after the one that is averaged, which is the last of a turn. Run those before it under "
               "no_sync(), or take another loop over virtual_ranks() for the next step");
  }
  has_kept_ = !averages;
  if (!averages) return std::nullopt;
  if (averaged_ != turn_ - first_) {
    return str("virtual rank ", turn_, " averages, and of the ", turn_ - first_,
               " virtual ranks of this process before it only ", averaged_,
               " ran an averaged backward() in this loop; every virtual rank runs one");
  }
  state_ = State::AVERAGED;
  ++averaged_;
  return std::nullopt;
}

void VirtualTurns::note_used(GradientArrivals& arrivals) {
  const std::vector<bool> used = arrivals.used();
  used_.resize(used.size(), false);
  for (std::size_t i = 0; i < used.size(); ++i) used_[i] = used_[i] || used[i];
  if (is_last_turn()) arrivals.set_used(used_);
}

}  // namespace lockstep
