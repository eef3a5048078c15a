// GroupFailure: the failure that ended a group, and every sentence that its ranks get about it. Backends pass
// ranks, operations and reasons. They write no sentence of their own, so the same failure reads the same in
// all of them.
//
//   record(peer_lost(rank(),
//                    {.rank = 3, .description = "rank 3 (pid 4121)", .has_left = false, .last_call = "barrier
//                    #2"}, "all_reduce #3", usual_cause));
//   ...
//   throw_failure("all_reduce #4", place, *failure_, trace_note);   // in every later call
//
// The first failure of a group is the one that all its ranks keep.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {

struct GroupFailure {
  ErrorCode code = ErrorCode::NONE;
  std::string text;
  int peer = -1;      // the rank that it names
  int reporter = -1;  // the rank that found it
  MismatchKind kind = MismatchKind::CALLS;
};

// Where an error is thrown: group "rows", rank 1 of 2 (rank 5 of the world).
struct GroupPlace {
  std::string_view group;
  int rank = 0;
  int size = 1;
  int world_rank = 0;
};
std::string text_of(const GroupPlace& place);

// The name of a wait that is not for an operation of the group.
inline constexpr const char* A_WAIT_OUTSIDE = "a wait outside of the group";

// ---- failures; `reporter` is the rank that found them

// The program or the library called abort(). `code` and `peer` are those of the error behind it; ABORTED and
// -1 if there is none.
GroupFailure aborted(int reporter, const std::string& reason, ErrorCode code, int peer);
// This rank alone has an error in the middle of an operation, so the other ranks would wait for its part.
GroupFailure given_up(int reporter, const std::string& operation, const std::exception_ptr& error);
// `late` is list_of_late(), `cause` is usual_cause() of the operation, and `peer` is the first late rank, or
// -1.
GroupFailure timed_out(int reporter, std::chrono::nanoseconds patience, const std::string& late,
                       const std::string& cause, int peer);
GroupFailure mismatched(int reporter, const std::string& disagreement,
                        MismatchKind kind = MismatchKind::CALLS);

struct LostPeer {
  int rank = 0;
  std::string description;  // "rank 3 (pid 4121 at 10.0.0.2:4711)"
  bool has_left = false;    // it said goodbye
  std::string unreachable;  // why it cannot be reached; empty if it is dead or has left
  std::string last_call;    // its last collective; empty if it made none
};
// `direction` says what the operation needed from the peer: ", waiting to send to it", or empty. `cause` is
// added for a peer that has left.
GroupFailure peer_lost(int reporter, const LostPeer& lost, const std::string& operation,
                       const std::string& direction, const std::string& cause);

// Lists ranks that are waited for: at most eight by name, then how many more.
std::string list_of_late(const std::vector<int>& late, const std::function<std::string(int)>& describe);
// The log message of a waiting rank.
std::string waiting_text(const std::string& operation, const GroupPlace& place,
                         std::chrono::nanoseconds waited, const std::string& late);

// ---- thrown by every later call

[[noreturn]] void throw_failure(const std::string& what, const GroupPlace& place, const GroupFailure& failure,
                                const std::string& trace_note = {});
// This rank has called destroy_process_group() or close().
[[noreturn]] void throw_left(const std::string& what, const GroupPlace& place);
// This process was forked from the rank.
[[noreturn]] void throw_forked(const std::string& what, const GroupPlace& place);

}  // namespace lockstep
