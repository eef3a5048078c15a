// Rendezvous: lets the processes of a job meet as rendezvous_plan.h decides. It keeps the objects that later
// worlds of this process need: inherited sockets, the connection to the store, and the store's server. Only
// job.cpp uses it.
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

// Reads the environment. Throws InvalidArgument for contradictions.
RendezvousFacts rendezvous_facts(const InitOptions& options);

struct Met {
  Meeting* meeting = nullptr;  // valid until the next meet()
  std::string backend;         // the meaning of "auto" in this job
  PlaceOnNode place;
};

class Rendezvous {
 public:
  // All ranks must ask for the same backends and belong to one job; otherwise all throw Mismatch. Blocks
  // until all ranks have met. Throws InvalidArgument, StoreError, Timeout, PeerLost.
  Met meet(const InitOptions& options, const RendezvousFacts& facts, const BackendChoice& wanted,
           Deadline deadline);

 private:
  void meet_here(const RendezvousFacts& facts, const RendezvousPlan& plan, Deadline deadline);
  void join_store(const RendezvousFacts& facts, const RendezvousPlan& plan, Deadline deadline);
  Met meet_over_mpi(const RendezvousFacts& facts, const BackendChoice& wanted, Deadline deadline);
  Met meet_over_store(std::shared_ptr<Store> store, const RendezvousFacts& facts, const RendezvousPlan& plan,
                      const BackendChoice& wanted, Deadline deadline);

  unsigned worlds_ = 0;  // number of worlds so far; part of the name, so that two worlds of one job never mix
  bool is_inherited_ = false;
  std::unique_ptr<Hub> hub_;
  std::optional<Secret> secret_;
  std::string store_place_;
  JobFingerprint store_job_;  // at the time of the connection
  std::unique_ptr<TcpStoreServer> server_;
  std::shared_ptr<TcpStore> tcp_store_;
  MetOverStore over_store_;
};

}  // namespace lockstep
