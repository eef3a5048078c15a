// The two ends of the launcher as plain data: the command to start, and the result.
//
//   LaunchSpec spec;
//   spec.command = {"./train", "--epochs", "2"};
//   spec.ranks = 4;
//   const RunResult result = run_ranks(spec);  // launch/run_ranks.h; `lockstep run` uses launch/guardian.h
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/first_cause.h"
#include "lockstep/launch/restart_plan.h"
#include "lockstep/os/child_process.h"

namespace lockstep {

// The place of this launcher among those of the job, one per machine.
struct NodePlace {
  int nodes = 1;
  int node = 0;
  int first_rank = 0;  // of this node; its ranks follow each other
  int world_size = 0;  // 0: the ranks of this node are all
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: any that is free
};

// Which of a rank's two streams are shown on the console and kept in its file: bits of torchrun's --tee and
// --redirects.
struct StreamChoice {
  static constexpr int OUT = 1;
  static constexpr int ERR = 2;
  static constexpr int BOTH = OUT | ERR;
  int shown = BOTH;
  int kept = BOTH;
};

struct LaunchSpec {
  std::vector<std::string> command;  // program and its arguments, passed on unchanged; no shell is involved
  int ranks = 1;                     // on this machine
  NodePlace place;
  std::vector<StreamChoice> streams;  // by local rank; empty: all is shown and kept
  std::string job_id = {};            // empty: a random one
  bool pass_local_rank = false;       // --local_rank=N is the program's first argument
  std::vector<std::pair<std::string, std::string>>
      environment;  // for every rank, on top of the launcher's own variables

  bool pin = true;                // give every rank its own cores (core_plan.h says when that is not done)
  bool prefix = true;             // "[rank] " before every line
  std::string log_base = "runs";  // the job's folder with one file per rank is made in here; empty: no files
  bool needs_logs = false;        // an error where these cannot be made; else the job runs without

  // After the first failure the others have `report_window` to notice it and say so, then SIGTERM, then
  // `failure_grace` until SIGKILL: together less than a second. After Ctrl-C they have `stop_grace`.
  bool stop_on_failure = true;
  std::chrono::milliseconds report_window{300};
  std::chrono::milliseconds failure_grace{500};
  std::chrono::milliseconds stop_grace{5000};
  int max_restarts = 0;  // so often the job is started again after a rank has failed (restart_plan.h)
  std::chrono::nanoseconds time_limit = std::chrono::nanoseconds::max();  // everything is killed after it
};

struct RankResult {
  int rank = 0;
  pid_t pid = 0;
  ExitStatus status;
  std::chrono::milliseconds ended_after{0};  // since the job's start
  bool was_stopped = false;                  // it ended after the launcher had told it to
  bool stood_still = false;             // it was stopped (SIGSTOP) when the launcher told the ranks to end
  std::optional<ToldFailure> told;      // by itself, of its failure
  std::string killer;                   // who killed it, where that is known; empty: nothing is
  std::vector<std::string> last_lines;  // of both streams in order of arrival, at most 20
  std::string output;                   // all of it (the last 4 MiB), for run_ranks() only
};

struct RunResult {
  std::vector<RankResult> ranks;
  std::optional<int> first_failure;  // the rank whose failure is the cause, by its number here
  std::optional<FirstCause> cause;   // that rank, by its number in the job
  std::string other_node;  // "node 1: ...": where the job failed first, when that was no rank of this node
  std::string of_job;      // the same line, when it was here and there are other nodes
  int stop_signal = 0;     // SIGINT and the like, when the job was told to stop
  AttemptEnd end = AttemptEnd::SUCCEEDED;
  bool timed_out = false;  // `time_limit` was reached
  std::vector<std::string>
      left_behind;      // "sleep (pid 71)": processes that outlived their rank and were killed
  int start_error = 0;  // errno value, when the program could not be run after all
  int exit_code = 0;    // what `lockstep run` returns
};

inline constexpr int EXIT_USAGE = 64;
inline constexpr int EXIT_INTERNAL = 70;
inline constexpr int EXIT_TIMED_OUT = 124;
inline constexpr int EXIT_NOT_EXECUTABLE = 126;
inline constexpr int EXIT_NOT_FOUND = 127;

}  // namespace lockstep
