// FailureNotes: a rank tells its launcher, in binary form, which kind of error it had and which rank caused
// it. The launcher cannot infer that from the order in which processes end.
//
//   the rank      begin_failure_notes(rank);  // this process is rank `rank` of the launcher's job
//                 note_failure(ErrorCode::PEER_LOST, 2);  // this rank's group failed because of rank 2
//   the launcher  FailureNotes notes;  // ranks inherit notes.for_ranks()
//                 for (const FailureNote& note : notes.read()) ...
//
// How         all ranks inherit one packet socket: LOCKSTEP_FAILURE_FD="NUMBER:INODE". A program may close
//             descriptors that it does not know and open others. If the number means another file now,
//             nothing is sent.
// Blocks      a rank waits at most a second if the launcher does not read.
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
  std::int32_t rank = 0;             // the rank of the job that sends the note
  ErrorCode code = ErrorCode::NONE;  // NONE: the rank works again
  // The rank that caused it, maybe `rank` itself. SOMEBODY: another rank, unknown which.
  std::int32_t culprit = SOMEBODY;
  std::chrono::steady_clock::time_point at;
};

// ---- in a rank. A process that has not called begin_failure_notes() sends nothing, nor do its forks.
void begin_failure_notes(int rank);
// Sends only the first failure after clear_failure(), because later failures of a rank follow from the first.
void note_failure(ErrorCode code, int culprit) noexcept;
void clear_failure() noexcept;  // the rank is a member of a new world

// ---- in the launcher
class FailureNotes {
 public:
  FailureNotes();  // throws SystemError

  int descriptor() const { return ours_.get(); }   // readable if there are notes
  int for_ranks() const { return theirs_.get(); }  // to be inherited
  std::string variable() const;                    // "LOCKSTEP_FAILURE_FD=..."
  std::vector<FailureNote> read();                 // all notes that have arrived; never blocks

 private:
  Fd ours_;
  Fd theirs_;
};

}  // namespace lockstep
