// One rank for launchers_test.py, nodes_test.py and mpi_test.py: says who it is, over what it met the others,
// and what they add up to. `launched --leaves R`: then rank R leaves, and the others say what they are told
// when they need it. `launched --job N`: each rank adds N to what it contributes, so that the sum says whose
// ranks have met.
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"

namespace {

// Ranks that a rank has left. One of them finds it first and tells the others, which may still be in the
// barrier that the rank left behind.
void need_who_left(const lockstep::ProcessGroup& world) {
  lockstep::comm::barrier(world);
  std::printf("the barrier ended without a rank\n");
}

}  // namespace

int main(int argc, char** argv) {
  const bool one_leaves = argc > 2 && argv[1] == std::string("--leaves");
  try {
    lockstep::init_process_group();
    const lockstep::ProcessGroup& world = lockstep::world();
    const bool has_number = argc > 2 && argv[1] == std::string("--job");
    long sum = world.rank() + 1 + (has_number ? std::atol(argv[2]) : 0);
    lockstep::comm::all_reduce(world, std::span(&sum, 1));
    lockstep::comm::barrier(world);
    std::printf("rank %d of %d, local rank %d, started by %s, over %s: sum %ld%s%s\n", world.rank(),
                world.size(), lockstep::get_local_rank(),
                std::string(name_of(lockstep::job_environment().source)).c_str(),
                lockstep::get_backend().c_str(), sum, argc > 1 ? " " : "", argc > 1 ? argv[1] : "");
    if (one_leaves && world.rank() != std::atoi(argv[2])) need_who_left(world);
    lockstep::destroy_process_group();
    return 0;
  } catch (const lockstep::PeerLost& error) {
    std::printf("%s: %s\n", one_leaves ? "told" : "error", error.what());
    return one_leaves ? 0 : 1;
  } catch (const lockstep::Error& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}
