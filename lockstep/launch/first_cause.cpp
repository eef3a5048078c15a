#include "lockstep/launch/first_cause.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <vector>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// After a signal has killed a process, the kernel reports its death only when all its memory is freed.
// Another rank may notice the loss and end before that.
constexpr std::chrono::milliseconds OVERTAKEN{100};

bool is_killed(const RankEnd& end) {
  constexpr std::array HARD = {SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP};
  return end.has_failed() && std::find(HARD.begin(), HARD.end(), end.status.signal) != HARD.end();
}

struct Candidate {
  int rank = 0;
  bool is_accused = false;  // other ranks reported it
  bool is_own = true;       // false: it reported that another rank, unknown which, made it fail
  std::chrono::milliseconds after{0};
  bool is_killed = false;
};

class Inquiry {
 public:
  explicit Inquiry(std::span<const RankEnd> ends) : ends_(ends) {
    for (const RankEnd& end : ends) by_rank_.emplace(end.rank, &end);
  }

  std::optional<Candidate> first() const {
    // The order of preference: a rank that blames no unknown rank, then a rank that others reported, then the
    // earliest. A rank killed by a signal goes before an earlier end within OVERTAKEN.
    std::vector<Candidate> candidates;
    for (const RankEnd& end : ends_) {
      if (end.has_failed()) candidates.push_back(cause_of(end));
    }
    if (candidates.empty()) return std::nullopt;
    keep_if_any(candidates, [](const Candidate& candidate) { return candidate.is_own; });
    keep_if_any(candidates, [](const Candidate& candidate) { return candidate.is_accused; });
    const auto earliest =
        std::min_element(candidates.begin(), candidates.end(),
                         [](const Candidate& a, const Candidate& b) { return a.after < b.after; });
    if (earliest->is_killed || earliest->is_accused) return *earliest;
    const auto overtaken =
        std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
          return candidate.is_killed && candidate.after - earliest->after <= OVERTAKEN;
        });
    return overtaken == candidates.end() ? *earliest : *overtaken;
  }

  const RankEnd* end_of(int rank) const {
    const auto found = by_rank_.find(rank);
    return found == by_rank_.end() ? nullptr : found->second;
  }

  // The rank that reported `rank` first.
  const RankEnd* witness_of(int rank) const {
    const RankEnd* first = nullptr;
    for (const RankEnd& end : ends_) {
      if (!end.told || end.told->culprit != rank || end.rank == rank) continue;
      if (first == nullptr || end.told->after < first->told->after) first = &end;
    }
    return first;
  }

 private:
  template <typename Condition> static void keep_if_any(std::vector<Candidate>& all, Condition condition) {
    if (std::none_of(all.begin(), all.end(), condition)) return;
    all.erase(std::remove_if(all.begin(), all.end(), [&](const Candidate& one) { return !condition(one); }),
              all.end());
  }

  Candidate candidate(int rank) const {
    const RankEnd* const end = end_of(rank);
    const RankEnd* const witness = witness_of(rank);
    Candidate found = {rank, witness != nullptr, true, {}, end != nullptr && is_killed(*end)};
    if (witness != nullptr) found.after = witness->told->after;
    if (end != nullptr && end->has_failed() && (witness == nullptr || end->after < found.after))
      found.after = end->after;
    return found;
  }

  // Follows the reports: from a rank to the rank that it failed because of.
  Candidate cause_of(const RankEnd& start) const {
    std::vector<const RankEnd*> path = {&start};
    while (true) {
      const RankEnd& here = *path.back();
      if (!here.told || here.told->culprit == here.rank) return candidate(here.rank);
      const int next = here.told->culprit;
      if (next < 0) {
        Candidate weak = candidate(here.rank);
        weak.is_own = false;
        return weak;
      }
      const RankEnd* const end = end_of(next);
      if (end == nullptr) return candidate(next);
      const auto before = std::find(path.begin(), path.end(), end);
      // Ranks that wait for each other in a circle. The rank that the first report of the circle names
      // counts.
      if (before != path.end())
        return candidate((*std::min_element(before, path.end(), [](const RankEnd* a, const RankEnd* b) {
                           return a->told->after < b->told->after;
                         }))->told->culprit);
      path.push_back(end);
    }
  }

  std::span<const RankEnd> ends_;
  std::map<int, const RankEnd*> by_rank_;
};

CauseKind kind_of(const RankEnd* end, const RankEnd* witness) {
  if (end != nullptr && end->has_failed()) return CauseKind::FAILED;
  if (end != nullptr && is_well(end->status) && !end->was_stopped) return CauseKind::LEFT;
  if (end != nullptr && end->stood_still) return CauseKind::STOOD;
  return witness != nullptr && witness->told->code == ErrorCode::TIMEOUT ? CauseKind::LATE : CauseKind::LOST;
}

}  // namespace

std::optional<FirstCause> first_cause(std::span<const RankEnd> ends) {
  const Inquiry inquiry(ends);
  const auto found = inquiry.first();
  if (!found) return std::nullopt;
  const RankEnd* const end = inquiry.end_of(found->rank);
  const RankEnd* const witness = inquiry.witness_of(found->rank);
  FirstCause cause;
  cause.rank = found->rank;
  cause.kind = kind_of(end, witness);
  cause.after = cause.kind == CauseKind::FAILED || cause.kind == CauseKind::LEFT ? end->after : found->after;
  if (witness != nullptr) cause.witness = witness->rank;
  cause.is_known = end != nullptr;
  return cause;
}

std::string describe(CauseKind kind, const ExitStatus& status) {
  switch (kind) {
    case CauseKind::FAILED: return "failed first: " + describe(status);
    case CauseKind::LEFT: return "ended first: " + describe(status) + ", while other ranks needed it";
    case CauseKind::STOOD: return "failed first: it was stopped (SIGSTOP) while other ranks waited for it";
    case CauseKind::LATE:
      return "failed first: other ranks waited for it until their timeout, although it ran";
    case CauseKind::LOST: return "failed first: other ranks lost the connection to it, although it ran";
  }
  return "failed first";
}

}  // namespace lockstep
