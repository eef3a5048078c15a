#include "lockstep/parallel/gradients/pass_exchange.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {

void PassExchange::start_used(const std::vector<bool>& used_here) {
  used_ = at::empty({static_cast<std::int64_t>(used_here.size())}, at::kByte);
  std::copy(used_here.begin(), used_here.end(), used_.mutable_data_ptr<std::uint8_t>());
  used_work_ = all_reduce(used_, ReduceOp::MAX, group_, /*async_op=*/true);
}

void PassExchange::start_order(const std::vector<std::size_t>& order) {
  order_ = at::empty({static_cast<std::int64_t>(order.size())}, at::kLong);
  std::copy(order.begin(), order.end(), order_.mutable_data_ptr<std::int64_t>());
  order_work_ = broadcast(order_, GroupRank{0}, group_, /*async_op=*/true);
}

void PassExchange::wait() {
  std::exchange(used_work_, Work()).wait();
  std::exchange(order_work_, Work()).wait();
}

bool PassExchange::was_used(std::size_t parameter) const {
  return !used_.defined() || used_.const_data_ptr<std::uint8_t>()[parameter] != 0;
}

std::optional<std::vector<std::size_t>> PassExchange::take_order() {
  const at::Tensor order = std::exchange(order_, {});
  if (!order.defined()) return std::nullopt;
  const auto* first = order.const_data_ptr<std::int64_t>();
  return std::vector<std::size_t>(first, first + order.numel());
}

}  // namespace lockstep
