// connect: makes a group of processes that share a store, beside the job or without one. For a plug-in, a
// test, or a framework with its own launcher. init_process_group() uses the same steps if ranks meet over a
// store.
//
//   auto store = std::make_shared<TcpStore>(
//       TcpStoreOptions{.host = "10.0.0.1", .port = 29500, .secret = secret});
//   ProcessGroup group = lockstep::connect(store, rank, size, {.name = "evaluation/1"});
//   comm::all_reduce(group, std::span(&score, 1));
//   group.close();
//
// Who         every process of the group, with the same name, size and backend, each with a rank of its own.
//             The process may belong to a job (init_process_group()), where its rank may differ, or to none.
//             Threads of one process may connect several groups at once.
// Blocks      until all ranks have come, or the timeout has passed.
// Name        of the group, in messages and as its key prefix in the store. A name can be used once, so
//             number the groups that are made one after another.
// Trust       every process that can use the store can join as a rank. A group over several machines that has
//             a `secret` proves it on each connection (store/handshake.h), so a stranger who reaches the
//             ports is refused.
// Throws      InvalidArgument: no store, a rank or size out of range, a backend that does not exist or serves
//             one rank. Mismatch: the processes ask for different sizes, backends or builds, or two use one
//             rank. Timeout, which names the ranks that did not come. PeerLost. StoreError.
// Ends        with close(). The group does not belong to the job: destroy_process_group() and the end of main
//             do not close it. If it is not closed, its peers see a process that ended without leaving.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/store/store.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct ConnectOptions {
  std::string name = "group";
  // Like in init_process_group(): a name that `lockstep info` lists, one for each device, or "auto".
  std::string backend = "auto";
  // The defaults are those of GroupOptions (30 minutes without progress, a warning after 5 seconds).
  std::optional<std::chrono::milliseconds> timeout = {};
  std::optional<std::chrono::milliseconds> warn_after = {};
  std::optional<std::string> secret = {};  // 32 bytes that only the processes of the group know
  // The address at which other ranks reach this process. Empty: the address from which it reaches a
  // TcpStore's server, else loopback.
  std::string local_address = {};
};

ProcessGroup connect(std::shared_ptr<Store> store, int rank, int size, const ConnectOptions& options = {});

}  // namespace lockstep
