// monitored_barrier: a barrier that names the ranks that did not come. Use it to find out why a job hangs.
//
//   comm::monitored_barrier(world, 10s);      // "ranks 1, 3 did not come within 10000 ms"
//
// Collective  every rank of `group`. Rank 0 receives a message from each rank and then releases all.
// Blocks      until all have come.
// Fails       RanksMissing on rank 0, which names the ranks that did not come: all of them, or the first with
//             wait_all_ranks = false. Aborted with the same text on the other ranks that came. The group is
//             then closed. PeerLost as soon as a rank is known to be dead.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

class RanksMissing : public Timeout {
 public:
  RanksMissing(const std::string& message, std::vector<int> ranks)
      : Timeout(message), ranks_(std::move(ranks)) {}
  const std::vector<int>& ranks() const { return ranks_; }  // within the group, ascending

 private:
  std::vector<int> ranks_;
};

void monitored_barrier(const ProcessGroup& group,
                       std::chrono::milliseconds timeout = std::chrono::minutes(30),
                       bool wait_all_ranks = true);

}  // namespace comm
}  // namespace lockstep
