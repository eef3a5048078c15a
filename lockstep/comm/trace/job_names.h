// Two jobs may have one name: both were started by hand with MASTER_PORT 29500, each in a network of its
// own. They are told apart by the network namespaces of their ranks.
//
//   trace::distinct_job_names({{"port 29500", /*rank=*/0, /*pid=*/11, "4026531840", true},
//                              {"port 29500", /*rank=*/0, /*pid=*/12, "4026532907", true}})
//   // "port 29500 in network namespace 4026531840", "port 29500 in network namespace 4026532907"
//
// Only names that two jobs certainly have are changed: two living processes are the same rank. The ranks of
// one job may lie in several namespaces, as do those of containers that reach each other.
#pragma once

#include <string>
#include <vector>

namespace lockstep::trace {

struct JobClaim {
  std::string job;  // the name that the rank gives; empty: none
  int rank = 0;
  long pid = 0;
  std::string network;  // number of the namespace; empty: not known
  bool is_alive = false;
};
// In the order of the claims.
std::vector<std::string> distinct_job_names(const std::vector<JobClaim>& claims);

}  // namespace lockstep::trace
