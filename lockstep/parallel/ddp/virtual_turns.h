// VirtualTurns: leads one Reducer through the turns of virtual ranks
// (parallel/virtual_ranks/virtual_ranks.h). Each turn has one backward that is averaged. The one of the last
// turn averages over all virtual ranks.
//
//   VirtualTurns turns(current_virtual_rank_plan(), get_rank(), parameters);
//   turns.on(TurnEvent::BEGIN_ROUND, 0, arrivals);
//   turns.on(TurnEvent::BEGIN_TURN, 2, arrivals);         // .grad is virtual rank 2's
//   if (const auto mistake = turns.begin_pass(/*averages=*/true)) refuse(*mistake);
//   turns.note_used(arrivals);
//   turns.on(TurnEvent::END_TURN, 2, arrivals);
//
//      ┌─────────┐  BEGIN_TURN   ┌─────────┐  a backward that averages   ┌──────────┐
//      │ OUTSIDE │ ────────────▶ │ IN_TURN │ ──────────────────────────▶ │ AVERAGED │
//      └─────────┘ ◀──────────── └─────────┘                             └──────────┘
//           ▲        END_TURN: gradients under no_sync are kept                │ END_TURN
//           └──────────────────────────────────────────────────────────────────┘
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/job/virtual_rank_plan.h"
#include "lockstep/parallel/gradients/gradient_arrivals.h"
#include "lockstep/parallel/gradients/turn_gradients.h"
#include "lockstep/parallel/gradients/virtual_sum.h"

namespace lockstep {

enum class TurnEvent { BEGIN_ROUND, BEGIN_TURN, END_TURN, END_ROUND, LEAVE_ROUND };

class VirtualTurns {
 public:
  VirtualTurns(const VirtualRankPlan& plan, int process, std::vector<at::Tensor> parameters);

  // The sum that reduces the buckets.
  const std::shared_ptr<VirtualSum>& sum() const { return sum_; }
  // Returns a mistake of the program, as a sentence.
  std::optional<std::string> on(TurnEvent event, int virtual_rank, GradientArrivals& arrivals);
  std::optional<std::string> begin_pass(bool averages);
  bool is_last_turn() const { return sum_->is_last_turn(); }
  // All gradients of an averaged backward have arrived. Collects which parameters the virtual ranks used. In
  // the last turn, `arrivals` gets those of all turns.
  void note_used(GradientArrivals& arrivals);

 private:
  enum class State { OUTSIDE, IN_TURN, AVERAGED };
  void begin_turn(int virtual_rank, GradientArrivals& arrivals);
  void end_turn(GradientArrivals& arrivals);

  const int virtual_ranks_;
  const int processes_;
  const int first_;  // first virtual rank of this process
  const std::shared_ptr<VirtualSum> sum_;
  TurnGradients gradients_;
  State state_ = State::OUTSIDE;
  int turn_ = 0;
  int averaged_ = 0;        // number of averaged turns in this round
  bool has_kept_ = false;   // this turn's virtual rank has gradients that were not averaged
  std::vector<bool> used_;  // parameters used in this round
};

}  // namespace lockstep
