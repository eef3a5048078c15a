// Which rank was the first cause of a job's failure. Known are how each rank ended, and what the ranks told
// of their failures (os/failure_note.h). The order in which processes end says little: a rank that lost its
// peer may end before the peer does. Pure.
//
//   rank 0 exit code 1, told: lost rank 2 ──▶ rank 2 exit code 1, told nothing: the cause
//   rank 1 exit code 1, told: aborted by rank 0 ──▶ rank 0
//
// Each failed rank is followed to the rank that it failed because of, and so on. If several ends are
// reached, a rank that other ranks named goes before one that nobody named, and then the earliest counts.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/exit_code.h"
#include "lockstep/os/child_process.h"

namespace lockstep {

// What a rank told before the launcher told anybody to stop.
struct ToldFailure {
  ErrorCode code = ErrorCode::NONE;
  int culprit = -1;  // rank of the job, which may be the teller; -1: another, but not known which
  std::chrono::milliseconds after{0};
};

// It did all it wanted to: it ended with 0, or asked to be started again (exit_code.h).
inline bool is_well(const ExitStatus& status) {
  return status.signal == 0 && (status.code == 0 || status.code == EXIT_REQUEUE);
}

struct RankEnd {
  int rank = 0;  // of the job
  ExitStatus status;
  bool was_stopped = false;  // it ended after the launcher had told it to
  bool stood_still = false;  // its process was stopped (SIGSTOP) when the launcher turned to it
  std::chrono::milliseconds after{0};
  std::optional<ToldFailure> told = {};

  bool has_failed() const { return !is_well(status) && !was_stopped; }
};

enum class CauseKind {
  FAILED,  // it ended with a failure of its own
  LEFT,    // it ended with exit code 0 or EXIT_REQUEUE while others needed it
  STOOD,   // its process was stopped (SIGSTOP) while others waited for it
  LATE,    // it did not do its part in time
  LOST,    // the others lost the connection to it, though it lived
};

struct FirstCause {
  int rank = 0;
  CauseKind kind = CauseKind::FAILED;
  std::chrono::milliseconds after{0};
  int witness = -1;      // the rank that told of it first; -1: none did
  bool is_known = true;  // false: nothing is known of that rank, whose machine does not answer
};

// `ends` in the order in which the ranks ended, those of which it is not known last. nullopt: none failed on
// its own.
std::optional<FirstCause> first_cause(std::span<const RankEnd> ends);

// "failed first: killed by SIGKILL", "ended first: exit code 0, while other ranks needed it"
std::string describe(CauseKind kind, const ExitStatus& status);

}  // namespace lockstep
