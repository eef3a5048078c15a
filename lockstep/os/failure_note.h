// What a rank tells its launcher about its failure, for programs: the kind of error, and which rank was the
// cause. The launcher cannot tell that from the order in which processes end.
//
//   the rank      begin_failure_notes(rank);  // it is rank `rank` of the launcher's job
//                 note_failure(ErrorCode::PEER_LOST, 2);  // my group has failed because of rank 2
//   the launcher  FailureNotes notes;  // ranks inherit notes.for_ranks()
//                 for (const FailureNote& note : notes.read()) ...
//
// Way         one socket for messages, which all ranks and their children inherit:
//             LOCKSTEP_FAILURE_FD="NUMBER:INODE". A program may close descriptors that it does not know. If
//             the number means another file by now, it is left alone.
// Blocks      a rank waits at most a second when the launcher does not read.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/os/fd.h"

namespace lockstep {

struct FailureNote {
  static constexpr int SOMEBODY = -1;
  std::int32_t rank = 0;             // of the job: who tells
  ErrorCode code = ErrorCode::NONE;  // NONE: all is well again
  std::int32_t culprit =
      SOMEBODY;  // the rank that was the cause, which may be `rank`; SOMEBODY: another, but not known which
  std::chrono::steady_clock::time_point at;
};

// ---- in a rank. A process that has not begun, and its forks, tell nothing.
void begin_failure_notes(int rank);
// Only the first after a clear_failure() is told: what follows in a rank follows from it.
void note_failure(ErrorCode code, int culprit) noexcept;
void clear_failure() noexcept;  // the rank is a member of a new world

// ---- in the launcher
class FailureNotes {
 public:
  FailureNotes();  // throws SystemError

  int descriptor() const { return ours_.get(); }   // readable when there is news
  int for_ranks() const { return theirs_.get(); }  // to be inherited
  std::string variable() const;                    // "LOCKSTEP_FAILURE_FD=..."
  std::vector<FailureNote> read();                 // what has come; never blocks

 private:
  Fd ours_;
  Fd theirs_;
};

}  // namespace lockstep
