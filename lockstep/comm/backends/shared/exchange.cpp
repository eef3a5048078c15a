#include "lockstep/comm/backends/shared/exchange.h"

#include <algorithm>

namespace lockstep::shared {
namespace {

// Reading through the kernel costs a look at every page, and spares the window (bench/results/EXPERIMENTS.md).
constexpr std::size_t LENT_FROM = std::size_t{12} << 20U;

}  // namespace

// A rank that has little for others that have much goes their way.
bool Exchange::is_worth_it(std::size_t bytes) const {
  if (request_.async_op || engine_->size() == 1) return false;
  std::size_t takes = 0;
  for (int r = 0; r < engine_->size(); ++r) takes += r == engine_->rank() ? 0 : expected_from(r);
  return engine_->paths().path_of(std::max(bytes, takes)) == Path::WINDOW;
}

bool Exchange::lends(std::size_t bytes) const {
  const bool is_copied_by_all = call_.verb == Verb::ALL_GATHER || call_.verb == Verb::ALL_TO_ALL;
  return is_copied_by_all && bytes >= LENT_FROM && engine_->lends_private_memory();
}

bool Exchange::offer(const Parts& given, bool is_same) {
  std::size_t gives = 0;
  for (int r = 0; r < engine_->size(); ++r) {
    const std::size_t bytes = r == engine_->rank() ? 0 : given[static_cast<std::size_t>(r)].size();
    gives = is_same ? std::max(gives, bytes) : gives + bytes;
  }
  if (!is_worth_it(gives)) return false;
  for (int r = 0; r < engine_->size(); ++r) {
    const auto& part = given[static_cast<std::size_t>(r)];
    if (r != engine_->rank() && !part.empty() && !is_private(part)) return false;
  }
  if (lends(gives)) {
    is_same ? lend_private(given[static_cast<std::size_t>(engine_->rank())])
            : lend_parts(given, Placement::PRIVATE);
    return true;
  }
  const PassagePlan plan = passage_plan(engine_->size(), is_same);
  if (!contribute_by_window(plan.window_bytes())) return false;
  write_sizes(given);
  plan_ = plan;
  given_ = given;
  lent_ = true;
  return true;
}

Exchange::ExchangeMethod Exchange::method() {
  if (method_ == ExchangeMethod::UNDECIDED && all_posted()) decide();
  return method_;
}

void Exchange::decide() {
  bool all_pass = true;
  bool all_lend = true;
  for (int r = 0; r < engine_->size(); ++r) {
    all_pass = all_pass && placement(r) == Placement::WINDOWED;
    all_lend = all_lend && (placement(r) == Placement::PRIVATE || placement(r) == Placement::IN_PLACE ||
                            placement(r) == Placement::NOWHERE);
  }
  staged_late_ = !all_pass && !all_lend;
  if (all_pass) {
    if (!sizes_agree()) return;
    std::vector<std::size_t> expected;
    for (int r = 0; r < engine_->size(); ++r) expected.push_back(expected_from(r));
    passage_.emplace(*engine_, *plan_, sequence_, std::move(given_), std::move(expected));
  } else if (staged_late_ && may_come_late(mine_)) {
    contribute_late();
  }
  method_ = all_pass ? ExchangeMethod::WINDOW : all_lend ? ExchangeMethod::LENT : ExchangeMethod::BLOCKS;
}

bool Exchange::sizes_agree() {
  for (int r = 0; r < engine_->size(); ++r) {
    if (r != engine_->rank() && !check_part(r, expected_from(r))) return false;
  }
  return true;
}

Passage& Exchange::passage() { return *passage_; }

bool Exchange::is_settled(int rank) const {
  if (!may_come_late(placement(rank)) || method_ == ExchangeMethod::LENT) return true;
  return method_ == ExchangeMethod::BLOCKS && has_late_block(rank);
}

bool Exchange::owes(int rank) const {
  if (rank == engine_->rank()) return false;
  return method_ == ExchangeMethod::WINDOW ? passage_->owes(rank) : !is_complete(rank);
}

}  // namespace lockstep::shared
