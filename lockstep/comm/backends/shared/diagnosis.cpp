#include "lockstep/comm/backends/shared/diagnosis.h"

#include <algorithm>

#include "lockstep/base/str.h"

namespace lockstep::shared {

std::optional<GroupFailure> Diagnosis::lost_peer(Waitable& target) const {
  const std::vector<int> awaited = target.awaited();
  for (int r = 0; r < membership_.size; ++r) {
    if (r == membership_.rank) continue;
    const bool left = has_left(control_, r);
    const bool needed = std::find(awaited.begin(), awaited.end(), r) != awaited.end();
    if (left ? !needed : membership_.is_alive(r)) continue;
    if (target.ready()) return std::nullopt;  // the rank did its part before it went
    const LostPeer lost{
        .rank = r, .description = describe_peer(r), .has_left = left, .last_call = last_call(r)};
    return peer_lost(membership_.rank, lost, target.describe(), {}, target.usual_cause());
  }
  return std::nullopt;
}

// Names a stopped rank before one that is merely late.
GroupFailure Diagnosis::timeout(const Waitable& target, std::chrono::nanoseconds patience) const {
  const std::vector<int> awaited = target.awaited();
  const auto stopped =
      std::find_if(awaited.begin(), awaited.end(), [this](int r) { return membership_.is_stopped(r); });
  const int peer = stopped != awaited.end() ? *stopped : awaited.empty() ? -1 : awaited.front();
  return timed_out(membership_.rank, patience, late_ranks(target), target.usual_cause(), peer);
}

std::string Diagnosis::late_ranks(const Waitable& target) const {
  return list_of_late(target.awaited(), [this](int r) {
    const std::string call = last_call(r);
    return str(describe_peer(r), membership_.is_stopped(r) ? ", which is stopped (SIGSTOP)" : "",
               call.empty() ? "" : str(" (last collective call: ", call, ")"));
  });
}

std::string Diagnosis::describe_peer(int rank) const {
  const int global = membership_.job_rank(rank);
  const std::string detail = membership_.peers->detail(membership_.world_rank(rank));
  if (global == rank) return str("rank ", rank, detail.empty() ? "" : " (" + detail + ")");
  return str("rank ", rank, " (rank ", global, " of the world", detail.empty() ? "" : ", ", detail, ")");
}

std::string Diagnosis::last_call(int rank) const {
  const std::uint64_t last = control_.rank_line(rank).last.load(std::memory_order_relaxed);
  if (last == 0) return {};
  const std::uint64_t sequence = last >> NUMBER_BITS;
  const auto [verb, purpose] = verb_and_purpose_of(number_for(last, sequence));
  return describe_last(verb, purpose, sequence);
}

}  // namespace lockstep::shared
