// await_device: waits until a device has carried out an operation that all ranks have called, or throws why
// it will not. NCCL and the device tell nothing unless they are asked, and of progress nothing at all.
//
//   await_device(lanes, operation, {streams, *hosts, "world", options});
//
// Throws      DistBackendError: NCCL has failed; PeerLost and what else the hosts' group throws: a rank has
//             failed, and the operation did not end in a moment after that; Timeout.
// Threads     a watcher's, without the core's lock.
#pragma once

#include <string>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/nccl/lanes.h"
#include "lockstep/comm/backends/nccl/operation.h"
#include "lockstep/comm/device_streams.h"

namespace lockstep::nccl {

struct WatchedGroup {
  DeviceStreams& streams;
  Backend& hosts;
  const std::string& name;
  const GroupOptions& options;
};
void await_device(Lanes& lanes, const Operation& operation, const WatchedGroup& group);

}  // namespace lockstep::nccl
