#include "lockstep/comm/backends/messages/call_log.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/str.h"

namespace lockstep {

std::optional<CallLog::Disagreement> CallLog::add(const Call& mine) {
  ++last_;
  mine_.push_back(mine);
  if (mine_.size() > MEMORY) mine_.pop_front();
  const auto others = ahead_.extract(last_);
  if (others.empty()) return std::nullopt;
  for (const auto& [rank, theirs] : others.mapped()) {
    if (!agree(mine, theirs)) return Disagreement{last_, rank, mine, theirs};
  }
  return std::nullopt;
}

std::optional<CallLog::Disagreement> CallLog::hear(int rank, std::uint64_t sequence, const Call& theirs) {
  Heard& latest = last_heard_.at(static_cast<std::size_t>(rank));
  if (sequence > latest.sequence) latest = {sequence, theirs};
  if (sequence > last_) {
    ahead_[sequence].emplace(rank, theirs);
    return std::nullopt;
  }
  const std::uint64_t back = last_ - sequence;
  if (back >= mine_.size()) return std::nullopt;
  const Call& mine = mine_[mine_.size() - 1 - back];
  if (agree(mine, theirs)) return std::nullopt;
  return Disagreement{sequence, rank, mine, theirs};
}

// `up_to(call, ranks)`: those of `ranks` whose last known call is not later than `call`.
std::vector<int> CallLog::late(std::uint64_t sequence, int self, const std::vector<int>& direct) const {
  std::vector<int> others(last_heard_.size());
  std::iota(others.begin(), others.end(), 0);
  std::erase(others, self);
  const auto up_to = [&](std::uint64_t call, std::vector<int> ranks) {
    std::erase_if(ranks, [&](int rank) { return heard(rank).sequence > call; });
    return ranks;
  };
  std::vector<int> found = up_to(sequence - 1, direct);
  if (found.empty()) found = up_to(sequence - 1, others);
  std::uint64_t least = sequence - 1;
  for (const int rank : found) least = std::min(least, heard(rank).sequence);
  const std::size_t waited_for = found.size();
  for (const int rank : up_to(least, others)) {
    const auto end = found.begin() + static_cast<std::ptrdiff_t>(waited_for);
    if (std::find(found.begin(), end, rank) == end) found.push_back(rank);
  }
  return found;
}

std::string CallLog::last_call_of(int rank) const {
  const Heard& latest = heard(rank);
  return latest.sequence == 0 ? "" : describe_last(latest.call.verb, latest.call.purpose, latest.sequence);
}

}  // namespace lockstep
