// One rank for launchers_test.py and nodes_test.py: says who it is, over what it met the others, and what they add up to.
#include <cstdio>
#include <span>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/job/job.h"

int main(int argc, char** argv) {
  try {
    lockstep::init_process_group();
    const lockstep::ProcessGroup& world = lockstep::world();
    long sum = world.rank() + 1;
    lockstep::comm::all_reduce(world, std::span(&sum, 1));
    lockstep::comm::barrier(world);
    std::printf("rank %d of %d, local rank %d, started by %s, over %s: sum %ld%s%s\n", world.rank(),
                world.size(), lockstep::get_local_rank(), lockstep::job_environment().source.c_str(),
                lockstep::get_backend().c_str(), sum, argc > 1 ? " " : "", argc > 1 ? argv[1] : "");
    lockstep::destroy_process_group();
    return 0;
  } catch (const lockstep::Error& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}
