// connect: a group of processes that share a store, beside the job or without one. For a plug-in, a test, or
// a framework with its own launcher. init_process_group() meets over a store by the same steps.
//
//   auto store = std::make_shared<TcpStore>(
//       TcpStoreOptions{.host = "10.0.0.1", .port = 29500, .secret = secret});
//   ProcessGroup group = lockstep::connect(store, rank, size, {.name = "evaluation/1"});
//   comm::all_reduce(group, std::span(&score, 1));
//   group.close();
//
// Who         every process of the group, with the same name, size and backend, each with a rank of its own.
//             The process may belong to a job (init_process_group()), where its rank may be another, or to
//             none. Threads of one process may connect several groups at once.
// Blocks      until all have come, or the timeout has passed.
// Name        of the group, in messages and as its place in the store. A name serves once: number the groups
//             that are made one after another.
// Trust       every process that can use the store can come as a rank. A group over several machines that
//             has a `secret` proves it in each connection (store/handshake.h), so a stranger that reaches
//             the ports does not get in.
// Throws      InvalidArgument: no store, a rank or size that does not fit, a backend that does not exist or
//             serves one rank. Mismatch: the processes ask for different sizes, backends or builds, or two
//             come as one rank. Timeout, which names the ranks that did not come. PeerLost. StoreError.
// Ends        with close(). The group is not the job's: destroy_process_group() and the end of main do not
//             close it, and its peers then see a process that ended without leaving.
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
  // As in init_process_group(): a name that `lockstep info` lists, one for each device, or "auto".
  std::string backend = "auto";
  // Defaults: those of GroupOptions (30 minutes without progress, a warning after 5 seconds).
  std::optional<std::chrono::milliseconds> timeout = {};
  std::optional<std::chrono::milliseconds> warn_after = {};
  std::optional<std::string> secret = {};  // 32 bytes that the processes know and nobody else
  // Where the others reach this process. Empty: the address by which it reaches a TcpStore's server, else
  // loopback.
  std::string local_address = {};
};

ProcessGroup connect(std::shared_ptr<Store> store, int rank, int size, const ConnectOptions& options = {});

}  // namespace lockstep
