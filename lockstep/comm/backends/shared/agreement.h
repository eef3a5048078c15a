// Agreement records which ranks have posted a collective, and whether their calls agree with this rank's
// call. A difference fails the group.
//
//   if (agreement.has_posted(request, rank)) read_what_it_contributes();
//
// OPEN --each rank was seen, and agrees--> all_posted()
//   |
//   +--a call or a size differs: failure recorded--> DISAGREES: no other rank counts as posted any more
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/backends/segment/rank_set.h"
#include "lockstep/comm/backends/shared/context.h"
#include "lockstep/comm/call.h"

namespace lockstep::shared {

class Agreement {
 public:
  Agreement(Context& context, std::uint64_t sequence, const Call& call)
      : context_(&context), sequence_(sequence), call_(call), posted_(context.size()) {}

  // Whether `rank` has posted this call. `request` is this rank's.
  bool has_posted(const Request& request, int rank);
  bool all_posted(const Request& request);
  bool disagrees() const { return state_ == State::DISAGREES; }
  // Compares the bytes that `rank` has for this rank with the bytes expected here. False when they differ.
  bool check_size(int rank, std::size_t expected_bytes, std::size_t found_bytes);

 private:
  enum class State { OPEN, DISAGREES };

  void disagree(const GroupFailure& failure);

  Context* context_;
  std::uint64_t sequence_;
  Call call_;
  RankSet posted_;  // ranks with a posted call that agrees
  State state_ = State::OPEN;
};

}  // namespace lockstep::shared
