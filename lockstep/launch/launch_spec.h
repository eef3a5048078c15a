// The input and the output of the launcher as plain data: the command to start, and the result.
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

// The place of this launcher among the launchers of the job. Each machine has one.
struct NodePlace {
  int nodes = 1;
  int node = 0;
  int first_rank = 0;  // of this node; its ranks have consecutive numbers
  int world_size = 0;  // 0: the job has no other nodes
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: any free port
};

// Which of a rank's two streams are shown on the console, and which are kept in its file. The bits are those
// of torchrun's --tee and --redirects.
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
  std::vector<StreamChoice> streams;  // by local rank; empty: every stream is shown and kept
  std::string job_id = {};            // empty: a random one
  bool pass_local_rank = false;       // insert --local_rank=N as the program's first argument
  // For every rank, in addition to the launcher's own variables.
  std::vector<std::pair<std::string, std::string>> environment;

  bool pin = true;     // give every rank cores of its own (core_plan.h lists the exceptions)
  bool prefix = true;  // "[rank] " before every line
  // The job's folder, with one file per rank, is made in here. Empty: no files.
  std::string log_base = "runs";
  bool needs_logs = false;  // throw if the folder cannot be made; otherwise the job runs without it

  // After the first failure the other ranks have `report_window` to notice and report it. Then they get
  // SIGTERM, and after `failure_grace` SIGKILL: together less than a second. After Ctrl-C they have
  // `stop_grace`.
  bool stop_on_failure = true;
  std::chrono::milliseconds report_window{300};
  std::chrono::milliseconds failure_grace{500};
  std::chrono::milliseconds stop_grace{5000};
  int max_restarts = 0;  // how many times the job is started again after a rank has failed (restart_plan.h)
  // When it is over, all ranks are killed.
  std::chrono::nanoseconds time_limit = std::chrono::nanoseconds::max();
};

struct RankResult {
  int rank = 0;
  pid_t pid = 0;
  ExitStatus status;
  std::chrono::milliseconds ended_after{0};  // since the job's start
  bool was_stopped = false;                  // it ended after the launcher had told it to stop
  bool stood_still = false;             // it was stopped (SIGSTOP) when the launcher told the ranks to end
  std::optional<ToldFailure> told;      // the failure that it reported
  std::string killer;                   // which process or kernel feature killed it; empty if unknown
  std::vector<std::string> last_lines;  // of both streams in order of arrival, at most 20
  std::string output;                   // all of it (the last 4 MiB), for run_ranks() only
};

struct RunResult {
  std::vector<RankResult> ranks;
  std::optional<int> first_failure;  // the rank that is the cause, by its number on this machine
  std::optional<FirstCause> cause;   // that rank, by its number in the job
  std::string other_node;            // "node 1: ...": where the job failed first, if not on this node
  std::string of_job;                // the same line, if it failed here first and there are other nodes
  int stop_signal = 0;               // the signal with which the job was told to stop, such as SIGINT
  AttemptEnd end = AttemptEnd::SUCCEEDED;
  bool timed_out = false;  // `time_limit` was reached
  // "sleep (pid 71)": processes that outlived their rank and were killed.
  std::vector<std::string> left_behind;
  int start_error = 0;  // errno value, if the program could not be run after all
  int exit_code = 0;    // the exit code of `lockstep run`
};

inline constexpr int EXIT_USAGE = 64;
inline constexpr int EXIT_INTERNAL = 70;
inline constexpr int EXIT_TIMED_OUT = 124;
inline constexpr int EXIT_NOT_EXECUTABLE = 126;
inline constexpr int EXIT_NOT_FOUND = 127;

}  // namespace lockstep
