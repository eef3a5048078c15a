// Lanes: the communicators and streams of one channel of a group over NCCL. There is a communicator for each
// level. A second stream carries the stages between machines, so that they run beside stages within a
// machine.
//
//   lanes.streams().wait(lanes.main(), record(caller));
//   lanes.launch(stages_of(request, rank, size, grid), patience);   // all of it is behind what the main
//                                                                   // stream holds,
//   Event end = lanes.streams().record(lanes.main());               // and before what follows there
//
// Threads: launch() by one thread at a time. check() and end() by any thread, also during a launch.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "lockstep/comm/backends/nccl/communicator.h"
#include "lockstep/comm/backends/nccl/levels.h"

namespace lockstep::nccl {

class Lanes {
 public:
  using Communicators =
      std::array<std::unique_ptr<Communicator>, LEVELS>;  // by Level; NODE and ACROSS are null without a grid

  Lanes(DeviceStreams& streams, int device, Communicators communicators);

  const DeviceStreams::Stream& main() const { return main_; }
  // Throws Communicator's errors.
  void launch(const std::vector<Stage>& stages, const Patience& patience);
  void check();
  // Ends all communicators at once: NCCL frees memory when it ends one, and CUDA then waits for all kernels
  // of the device, those of the others included. False: NCCL needs longer than Communicator::LIMIT.
  enum class End { FINISH, ABORT };
  static bool end(const std::vector<Lanes*>& all, End how);

 private:
  DeviceStreams* streams_;
  Communicators communicators_;
  DeviceStreams::Stream main_;
  DeviceStreams::Stream across_;  // null without a grid
};

}  // namespace lockstep::nccl
