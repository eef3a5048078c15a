// CallLog: the calls that this rank has made on a group, and the calls that other ranks have told it of. It
// finds the first disagreement, in whatever order ranks call and hear of calls. It is for backends whose
// ranks tell each other their calls in messages.
//
//   CallLog log(ranks);
//   if (const auto other = log.add(mine)) fail(*other);                  // this rank's next call
//   if (const auto other = log.hear(rank, 118, theirs)) fail(*other);    // somebody else's call #118
//
// Remembers this rank's last MEMORY calls. A rank that is further behind is not compared with. Nobody has
// waited for such a rank since.
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
  // Returns the ranks that rank `self` waits for in call #`sequence` (from 1), as far as `self` has heard.
  // These are the ranks of `direct` (`self` exchanges data with them) that have not made the call. If all of
  // `direct` have made it, they are any ranks that have not. To them come the ranks that these may be waiting
  // for: those that have made no later call than any of these. Empty if all ranks have made the call.
  //   heard: rank 1 #5, rank 2 #4, rank 3 #4;   late(5, /*self=*/0, /*direct=*/{2}) is {2, 3}
  std::vector<int> late(std::uint64_t sequence, int self, const std::vector<int>& direct) const;
  // "barrier #3"; empty if no call of that rank was heard of.
  std::string last_call_of(int rank) const;

 private:
  struct Heard {
    std::uint64_t sequence = 0;
    Call call;
  };
  const Heard& heard(int rank) const { return last_heard_.at(static_cast<std::size_t>(rank)); }

  std::uint64_t last_ = 0;
  std::deque<Call> mine_;  // the last of them is call number last_
  std::map<std::uint64_t, std::map<int, Call>>
      ahead_;  // by sequence number: calls of others that this rank has yet to make
  std::vector<Heard> last_heard_;
};

}  // namespace lockstep
