// Call: what a rank called, as the others are told of it. Ranks whose calls with one sequence number do not
// agree are told both, in these words, whatever the backend.
//
//   if (!agree(mine, theirs))
//     fail("rank 0 called " + describe(mine) + ", rank 1 called " + describe(theirs));
//   // rank 0 called all_reduce(float32[10], sum), rank 1 called broadcast(float32[10], root 0)
//
// With the part of the library that made it, where that is not the program (purpose.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/dtype.h"
#include "lockstep/base/visibility.h"
#include "lockstep/comm/backend.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct Call {
  Verb verb = Verb::BARRIER;
  DType dtype = DType::UINT8;
  ReduceOp op = ReduceOp::SUM;
  Purpose purpose = Purpose::PROGRAM;
  std::int32_t root = 0;  // of a verb without a root: the purpose's mark
  std::uint64_t count = 0;
};
static_assert(sizeof(Call) == 16);

bool has_mark(Verb verb);  // neither root nor peer
// "all_reduce #118 for the gradients of a DistributedDataParallel (SimpleCNN)"; the name is this rank's.
std::string describe_own(const Request& request, std::uint64_t sequence);
std::string describe_last(Verb verb, Purpose purpose, std::uint64_t sequence);
Call call_of(const Request& request);
std::string describe(const Call& call);
inline bool has_equal_counts(Verb verb) {
  return verb == Verb::BROADCAST || verb == Verb::ALL_REDUCE || verb == Verb::REDUCE;
}
// Whether the two belong together. Counts are compared where the verb wants equal ones; sizes that belong to
// a pair of ranks (Request) are the backend's to check.
inline bool agree(const Call& a, const Call& b) {
  return a.verb == b.verb && a.dtype == b.dtype && a.op == b.op && a.purpose == b.purpose &&
         a.root == b.root && (a.count == b.count || !has_equal_counts(a.verb));
}

// For such sizes: what `rank` expects of rank `source`, and what that one has for it, in bytes.
struct Sizes {
  int rank = 0;
  std::size_t expected = 0;
  int source = 0;
  std::size_t found = 0;
};
std::string usual_cause(const Call& mine, const Call& theirs);
std::string describe_disagreement(std::uint64_t sequence, int my_rank, const Call& mine, int their_rank,
                                  const Call& theirs);
// "recv(float32[10], from rank 1, tag 7)".
std::string describe_message(const Request& request);
// Of message `number` from one rank to another: only dtype and count of the two calls are looked at.
std::string describe_message_disagreement(std::uint64_t number, int from, int to, std::int64_t tag,
                                          const Call& sent, const Call& received);
std::string describe_disagreement(std::uint64_t sequence, const Call& mine, const Call& theirs,
                                  const Sizes& sizes);

}  // namespace lockstep
