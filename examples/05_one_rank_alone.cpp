// What happens when only rank 0 calls a collective: an error that says who did not come, where others hang.
//
//   build/lockstep run -n 2 build/examples/one_rank_alone
//   [0] rank 0 alone: all_reduce #1 on group "world", rank 0 of 2: rank 1 (pid N) has left the group ...
//
//   build/examples/one_rank_alone --spawn 2                 # the same without the launcher
#include <ATen/ATen.h>

#include <cstdio>

#include "examples/job.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/collectives.h"

namespace dist = lockstep;

// Rank 1 goes on and leaves, and rank 0 learns that at once. Had it stayed without coming, the error would be
// a Timeout: 30 minutes later, or whatever init_process_group("auto", {.timeout = ...}) says, with a warning
// after 5 seconds.
void run() {
  dist::init_process_group();
  if (dist::get_rank() == 0) {
    try {
      dist::all_reduce(at::ones({2}));
      std::printf("rank 0 has a result that nobody else has a part in\n");
    } catch (const dist::PeerLost& lost) {
      std::printf("rank 0 alone: %s\n", lost.what());
    }
  }
  dist::destroy_process_group();
}

int main(int argc, char** argv) { return run_job(argc, argv, run); }
