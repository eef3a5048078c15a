// CallLog: what this rank has called on a group and what it has heard that others called, so that ranks that
// disagree find out, whoever calls or hears first. For backends whose ranks tell each other their calls in
// messages.
//
//   CallLog log(ranks);
//   if (const auto other = log.add(mine)) fail(*other);                  // this rank's next call
//   if (const auto other = log.hear(rank, 118, theirs)) fail(*other);    // somebody else's call #118
//
// Remembers this rank's last MEMORY calls: a rank that is further behind is not compared with (it can only be
// if nobody has waited for it since).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/call.h"

namespace lockstep {

class CallLog {
 public:
  struct Disagreement {
    std::uint64_t sequence = 0;
    int rank = 0;
    Call mine;
    Call theirs;
  };

  static constexpr std::size_t MEMORY = 1024;

  explicit CallLog(int ranks) : last_heard_(static_cast<std::size_t>(ranks)) {}

  std::uint64_t last() const { return last_; }  // number of this rank's last call
  std::optional<Disagreement> add(const Call& mine);
  std::optional<Disagreement> hear(int rank, std::uint64_t sequence, const Call& theirs);
  bool has_called(int rank, std::uint64_t sequence) const { return heard(rank).sequence >= sequence; }
  // Whom rank `self` waits for in call #`sequence` (from 1), as far as it has heard: of the ranks it
  // exchanges something with (`direct`) those that have not made the call, else any that has not; then those
  // that these may be waiting for themselves, which have made no later call than any of these. Empty: all
  // have made it.
  //   heard: rank 1 #5, rank 2 #4, rank 3 #4;   late(5, /*self=*/0, /*direct=*/{2}) is {2, 3}
  std::vector<int> late(std::uint64_t sequence, int self, const std::vector<int>& direct) const;
  // "barrier #3"; empty if none was heard of.
  std::string last_call_of(int rank) const;

 private:
  struct Heard {
    std::uint64_t sequence = 0;
    Call call;
  };
  const Heard& heard(int rank) const { return last_heard_.at(static_cast<std::size_t>(rank)); }

  std::uint64_t last_ = 0;
  std::deque<Call> mine_;  // the last of them is #last_
  std::map<std::uint64_t, std::map<int, Call>>
      ahead_;  // by sequence number, of calls this rank has yet to make
  std::vector<Heard> last_heard_;
};

}  // namespace lockstep
