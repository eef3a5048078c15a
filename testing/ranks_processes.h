// Starts the processes of one RANKS_TEST, watches them to the end and says what became of each.
//
//   const Outcome outcome =
//       run_processes({.filter = "AllReduce/Sums.shm_4", .ranks = 4, .processes = 4, ...});
//
// Blocks      until every process has ended, or has been killed at the deadline; ten seconds after a rank
//             died for no reason known to the test at the latest.
// Leaves      no process behind: each has a process group that is killed at the end, and dies with this
//             process.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "testing/ranks_report.h"

namespace lockstep::harness {

struct ChildPlan {
  int rank = 0;
  int parent = 0;  // pid of the watcher
  int report_fd = -1;
};

struct ProcessesPlan {
  std::string filter;  // the full name of the one test that the processes run
  // What a copy of this process does as a rank, before it exits with the code that this returns. Empty: ranks
  // are programs of their own (the same one), as in a job, and find their place with child_plan(). A copy
  // saves loading libtorch once more.
  std::function<int(const ChildPlan&)> as_copy;
  int ranks = 1;
  int processes = 1;  // `ranks`, or 1 when the ranks are threads
  std::vector<int> dying;
  std::chrono::seconds within{1200};
  std::vector<std::pair<std::string, std::string>> variables;
};

struct ProcessOutcome {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;
  bool timed_out = false;   // it was still running when everything was killed
  bool finished = false;    // it has run the body
  std::string where;        // state and place in the kernel of each thread, if timed_out
  std::string last_output;  // the last lines of stdout and stderr
  std::string note;         // what its FINISHED record says
};

struct Outcome {
  std::vector<Report> reports;  // failures and skips in order of arrival
  std::vector<ProcessOutcome> processes;
};

Outcome run_processes(const ProcessesPlan& plan);

// What run_processes() told this process on its command line; nullopt in the process that watches. Removes
// the arguments.
std::optional<ChildPlan> child_plan(int* argc, char** argv);

}  // namespace lockstep::harness
