// Makes the processes of a job meet as rendezvous_plan.h decides, and keeps what serves later worlds of this
// process too: inherited sockets, the connection to the store, and the store's server. Used by job.cpp only.
//
//   Rendezvous rendezvous;                                   // one per process
//   const Met met = rendezvous.meet(options, rendezvous_facts(options), choose_backends("auto"), deadline);
//   ... find_backend(met.backend, size).make(*met.meeting, ...)
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/backends/registry.h"
#include "lockstep/comm/meeting/hub.h"
#include "lockstep/job/job.h"
#include "lockstep/job/meet_over_store.h"
#include "lockstep/job/place_on_node.h"
#include "lockstep/job/rendezvous_plan.h"
#include "lockstep/os/secret.h"
#include "lockstep/store/tcp_store.h"
#include "lockstep/store/tcp_store_server.h"

namespace lockstep {

// Reads the environment. Throws InvalidArgument for what does not fit together.
RendezvousFacts rendezvous_facts(const InitOptions& options);

struct Met {
  Meeting* meeting = nullptr;  // valid until the next meet()
  std::string backend;         // what "auto" means here
  PlaceOnNode place;
};

class Rendezvous {
 public:
  // All ranks must ask for the same backends and belong to one job, or all throw Mismatch. Blocks until all
  // have met. Throws InvalidArgument, StoreError, Timeout, PeerLost.
  Met meet(const InitOptions& options, const RendezvousFacts& facts, const BackendChoice& wanted,
           Deadline deadline);

 private:
  void meet_here(const RendezvousFacts& facts, const RendezvousPlan& plan, Deadline deadline);
  void join_store(const RendezvousFacts& facts, const RendezvousPlan& plan, Deadline deadline);
  Met meet_over_mpi(const RendezvousFacts& facts, const BackendChoice& wanted, Deadline deadline);
  Met meet_over_store(std::shared_ptr<Store> store, const RendezvousFacts& facts, const RendezvousPlan& plan,
                      const BackendChoice& wanted, Deadline deadline);

  unsigned worlds_ = 0;  // so far: jobs that meet by name never mix two of their worlds
  bool is_inherited_ = false;
  std::unique_ptr<Hub> hub_;
  std::optional<Secret> secret_;
  std::string store_place_;
  JobFingerprint store_job_;  // when this process connected to it
  std::unique_ptr<TcpStoreServer> server_;
  std::shared_ptr<TcpStore> tcp_store_;
  MetOverStore over_store_;
};

}  // namespace lockstep
