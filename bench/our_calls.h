// Lockstep as timed_collectives.h takes it: the collectives on spans, of the world group.
#pragma once

#include <span>
#include <vector>

#include "bench/timed_collectives.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"

namespace bench {

struct Ours {
  int rank() const { return lockstep::get_rank(); }
  int size() const { return lockstep::get_world_size(); }
  void barrier() const { lockstep::comm::barrier(lockstep::world()); }
  void maxima(std::vector<double>& values) const {
    lockstep::comm::all_reduce(lockstep::world(), std::span(values), lockstep::ReduceOp::MAX);
  }

  void call(const Case& which, std::span<float> input, std::span<float> output) const {
    namespace comm = lockstep::comm;
    const lockstep::ProcessGroup& world = lockstep::world();
    const std::span<const float> given = input;
    if (which.verb == "barrier") comm::barrier(world);
    if (which.verb == "all_reduce") comm::all_reduce(world, input);
    if (which.verb == "reduce_scatter") comm::reduce_scatter(world, output, given);
    if (which.verb == "broadcast") comm::broadcast(world, input, 0);
    if (which.verb == "all_gather") comm::all_gather(world, given, output);
    if (which.verb == "all_to_all") comm::all_to_all(world, given, output);
    if (which.verb == "send" && rank() == 0) comm::send(world, given, 1);
    if (which.verb == "send" && rank() == 1) comm::recv(world, input, 0);
  }
};

}  // namespace bench
