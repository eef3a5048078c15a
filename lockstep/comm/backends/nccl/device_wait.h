// await_device: waits until a device has completed an operation that all ranks have called, or throws the
// reason why it will not. NCCL and the device have to be polled, and they report no progress before the end.
//
//   await_device(lanes, operation, {streams, *hosts, "world", options});
//
// Throws      DistBackendError if NCCL has failed. PeerLost and the other errors of the hosts' group if a
//             rank has failed, and the operation did not end within a moment after that. Timeout.
// Threads     called by a watcher, without the core's lock.
#pragma once

#include <exception>
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

// What has failed or ended the hosts' group; null if nothing has. Does not wait.
std::exception_ptr failure_of_hosts(Backend& hosts);

}  // namespace lockstep::nccl
