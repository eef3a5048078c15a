// Two jobs may have one name: both were started by hand with MASTER_PORT 29500, each in a network of its own.
// The network namespaces of their ranks tell them apart.
//
//   trace::distinct_job_names({{"port 29500", /*rank=*/0, /*pid=*/11, "4026531840", true},
//                              {"port 29500", /*rank=*/0, /*pid=*/12, "4026532907", true}})
//   // "port 29500 in network namespace 4026531840", "port 29500 in network namespace 4026532907"
//
// A name is changed only if two jobs certainly have it: two living processes are the same rank. Ranks of one
// job may lie in several namespaces, as in containers that reach each other.
#pragma once

#include <string>
#include <vector>

namespace lockstep::trace {

struct JobClaim {
  std::string job;  // the name that the rank gives; empty if it gives none
  int rank = 0;
  long pid = 0;
  std::string network;  // number of the namespace; empty if it is not known
  bool is_alive = false;
};
// Returns the names in the order of the claims.
std::vector<std::string> distinct_job_names(const std::vector<JobClaim>& claims);

}  // namespace lockstep::trace
