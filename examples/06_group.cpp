// A collective among two of the ranks: each of the group adds a one, so both end with 2.
//
//   build/lockstep run -n 4 build/examples/group
//   [0] rank 0 of the job, rank 0 of the group: 2
//   [1] rank 1 of the job, rank 1 of the group: 2
//   [2] rank 2 of the job, not in the group: 1
//   [3] rank 3 of the job, not in the group: 1
//
//   build/examples/group --spawn 4                          # the same without the launcher
#include <ATen/ATen.h>

#include <cstdio>

#include "examples/job.h"
#include "lockstep/job/groups.h"
#include "lockstep/tensor/collectives.h"

namespace dist = lockstep;

void run() {
  dist::init_process_group();
  const dist::ProcessGroup group = dist::new_group({0, 1});  // every rank calls it, also those outside
  const at::Tensor tensor = at::ones({1});
  if (group.is_member()) {
    dist::all_reduce(tensor, dist::ReduceOp::SUM, group);
    std::printf("rank %d of the job, rank %d of the group: %g\n", dist::get_rank(), group.rank(),
                tensor.item<double>());
  } else {
    std::printf("rank %d of the job, not in the group: %g\n", dist::get_rank(), tensor.item<double>());
  }
  dist::destroy_process_group();
}

int main(int argc, char** argv) { return run_job(argc, argv, run); }
