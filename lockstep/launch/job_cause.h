// find_job_cause: finds the first cause of a failure in a job on several machines. Each launcher publishes
// how its ranks ended. From these data every launcher finds the same rank (first_cause.h). That rank's
// launcher then describes the failure for all, with the rank's last words.
//
//   const JobCause cause =
//       find_job_cause(link, node, ends_here, [&](const FirstCause& of) { return words_of(of); });
//   if (!cause.is_here) console.line("the job failed on another machine: " + cause.line);
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/launch/first_cause.h"
#include "lockstep/launch/node_group.h"

namespace lockstep {

struct JobCause {
  bool is_here = false;  // the cause is a rank of this launcher
  FirstCause cause;      // set if the cause is here
  std::string line;      // "node 1: rank 2 failed first: ...", the same on all launchers
  int exit_code = 1;
  bool is_launcher_gone = false;  // a launcher of another machine, which can start no ranks again
};

// Publishes `mine`. Blocks until the other launchers have published theirs or are gone, at most some seconds.
// nullopt: no rank failed by itself, and all launchers are there.
std::optional<JobCause> find_job_cause(NodeLink& link, int node, std::span<const RankEnd> mine,
                                       const std::function<std::string(const FirstCause&)>& words);

// The exit code of a job with that cause: the rank's own, or that of the first rank that failed because of
// it.
int exit_code_of(const FirstCause& cause, std::span<const RankEnd> ends);

// The form in the store.
std::string pack_ends(std::span<const RankEnd> ends);
std::vector<RankEnd> unpack_ends(const std::string& text);

}  // namespace lockstep
