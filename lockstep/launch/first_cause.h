// first_cause: finds the rank that was the first cause of a job's failure. It knows how each rank ended, and
// the failures that the ranks reported (os/failure_note.h). The order in which processes end is no proof: a
// rank that lost its peer may end before the peer does. Pure.
//
//   rank 0 exit code 1, reported: lost rank 2 ──▶ rank 2 exit code 1, no report: the cause
//   rank 1 exit code 1, reported: aborted by rank 0 ──▶ rank 0
//
// From each failed rank the search goes to the rank that it failed because of, and so on. If it reaches
// several ranks, those that others reported go before the rest, and among these the earliest counts.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/exit_code.h"
#include "lockstep/os/child_process.h"

namespace lockstep {

// A failure that a rank reported before the launcher told any rank to stop.
struct ToldFailure {
  ErrorCode code = ErrorCode::NONE;
  int culprit = -1;  // rank of the job, maybe the reporter itself; -1: another rank, unknown which
  std::chrono::milliseconds after{0};
};

// The rank finished its work: it ended with 0, or asked for a restart (exit_code.h).
inline bool is_well(const ExitStatus& status) {
  return status.signal == 0 && (status.code == 0 || status.code == EXIT_REQUEUE);
}

struct RankEnd {
  int rank = 0;  // of the job
  ExitStatus status;
  bool was_stopped = false;  // it ended after the launcher had told it to stop
  bool stood_still = false;  // its process was stopped (SIGSTOP) when the launcher began to stop the ranks
  std::chrono::milliseconds after{0};
  std::optional<ToldFailure> told = {};

  bool has_failed() const { return !is_well(status) && !was_stopped; }
};

enum class CauseKind {
  FAILED,  // it failed by itself
  LEFT,    // it ended with exit code 0 or EXIT_REQUEUE while other ranks needed it
  STOOD,   // its process was stopped (SIGSTOP) while other ranks waited for it
  LATE,    // other ranks waited for it until their timeout
  LOST,    // other ranks lost the connection to it, although it lived
};

struct FirstCause {
  int rank = 0;
  CauseKind kind = CauseKind::FAILED;
  std::chrono::milliseconds after{0};
  int witness = -1;      // the rank that reported it first; -1 if none did
  bool is_known = true;  // false if the end of that rank is unknown, because its machine does not answer
};

// `ends` has the ranks that are known to have ended. Among equal times the first entry counts. nullopt if no
// rank failed by itself.
std::optional<FirstCause> first_cause(std::span<const RankEnd> ends);

// "failed first: killed by SIGKILL", "ended first: exit code 0, while other ranks needed it"
std::string describe(CauseKind kind, const ExitStatus& status);

}  // namespace lockstep
