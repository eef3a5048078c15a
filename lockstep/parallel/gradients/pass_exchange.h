// PassExchange: two small facts about a backward that ranks exchange beside its gradients. They are which
// parameters some rank used, and in which order rank 0's gradients arrived.
//
//   PassExchange exchange(group);
//   exchange.start_used(flags);            // flags[i]: this rank used parameter i
//   exchange.start_order({2, 1, 0});
//   exchange.wait();
//   exchange.was_used(1);                  // by any rank
//   if (const auto order = exchange.take_order()) ...          // rank 0's
//
// Collective  start_used(), start_order() and wait(), in the same order on every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/work.h"

namespace lockstep {

class PassExchange {
 public:
  explicit PassExchange(ProcessGroup group) : group_(std::move(group)) {}

  void start_used(const std::vector<bool>& used_here);
  void start_order(const std::vector<std::size_t>& order);
  void wait();

  // True for every parameter if nothing was exchanged. The answer stays until forget_used().
  bool was_used(std::size_t parameter) const;
  void forget_used() { used_.reset(); }
  // Empty unless start_order() was called since the last call.
  std::optional<std::vector<std::size_t>> take_order();

 private:
  const ProcessGroup group_;
  at::Tensor used_;
  Work used_work_;
  at::Tensor order_;
  Work order_work_;
};

}  // namespace lockstep
