// Call: the facts of a call that a rank tells the other ranks. If the calls of two ranks with one sequence
// number do not agree, every rank gets an error that quotes both, in the same words for every backend.
//
//   if (!agree(mine, theirs))
//     fail("rank 0 called " + describe(mine) + ", rank 1 called " + describe(theirs));
//   // rank 0 called all_reduce(float32[10], sum), rank 1 called broadcast(float32[10], root 0)
//
// The words also name the part of the library that made the call, if it was not the program (purpose.h).
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
  std::int32_t root = 0;  // for a verb without a root: the purpose's mark
  std::uint64_t count = 0;
};
static_assert(sizeof(Call) == 16);

bool has_mark(Verb verb);  // true if the verb has neither root nor peer
// "all_reduce #118 for the gradients of a DistributedDataParallel (SimpleCNN)". The name is the one on this
// rank.
std::string describe_own(const Request& request, std::uint64_t sequence);
std::string describe_last(Verb verb, Purpose purpose, std::uint64_t sequence);
Call call_of(const Request& request);
std::string describe(const Call& call);
inline bool has_equal_counts(Verb verb) {
  return verb == Verb::BROADCAST || verb == Verb::ALL_REDUCE || verb == Verb::REDUCE;
}
// Returns whether the two calls belong together. Counts are compared if the verb wants equal ones. Sizes that
// belong to a pair of ranks (Request) are checked by the backend.
inline bool agree(const Call& a, const Call& b) {
  return a.verb == b.verb && a.dtype == b.dtype && a.op == b.op && a.purpose == b.purpose &&
         a.root == b.root && (a.count == b.count || !has_equal_counts(a.verb));
}

// The sizes of one pair of ranks: the bytes that `rank` expects from rank `source`, and those that `source`
// has for it.
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
// For message `number` from one rank to another. Of the two calls only dtype and count are compared.
std::string describe_message_disagreement(std::uint64_t number, int from, int to, std::int64_t tag,
                                          const Call& sent, const Call& received);
std::string describe_disagreement(std::uint64_t sequence, const Call& mine, const Call& theirs,
                                  const Sizes& sizes);

}  // namespace lockstep
