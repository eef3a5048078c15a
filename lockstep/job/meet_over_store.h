// How ranks that share a store come to the meeting over which their group is made: they introduce themselves
// over the store, and prove whether they are on one machine, where they meet again through sockets that pass
// descriptors. No globals: connect() and init_process_group() both use it.
//
//   MetOverStore met = meet_over_store({.meeting = ..., .local_rank = 0}, choice, deadline);
//   ProcessGroup group =
//       make_group(met.meeting(), met.backend, choice, met.place.local_rank, "world", options,
//                                   deadline);
//
// Who         every rank, with the same name. Blocks until all have come.
// Throws      as connect() does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backends/registry.h"
#include "lockstep/comm/meeting/hub.h"
#include "lockstep/comm/meeting/store_meeting.h"
#include "lockstep/job/place_on_node.h"

namespace lockstep {

struct MeetOverStoreOptions {
  StoreMeetingOptions meeting;  // an empty local_address: chosen here
  int local_rank = -1;          // the number on this machine, if a launcher gives one
  int virtual_ranks = 0;        // 0: none
};

struct MetOverStore {
  std::unique_ptr<StoreMeeting> over_store;
  std::unique_ptr<Hub> hub;  // where all are on one machine and the backend needs it
  std::string backend;       // what "auto" means here
  PlaceOnNode place;

  Meeting& meeting() const { return hub ? static_cast<Meeting&>(*hub) : *over_store; }
};

MetOverStore meet_over_store(MeetOverStoreOptions options, const BackendChoice& wanted, Deadline deadline);

// What each rank said of its machine.
struct Introduction;
std::vector<RankOnMachine> on_machines(const std::vector<Introduction>& all);
// What all ranks must ask for alike.
std::string text_of(const BackendChoice& wanted);

// The group of all ranks of the meeting: `backend` for the CPU's memory and, where `wanted` has one, the
// other for devices.
ProcessGroup make_group(Meeting& meeting, const std::string& backend, const BackendChoice& wanted,
                        int local_rank, const std::string& name, const GroupOptions& options,
                        Deadline deadline);

}  // namespace lockstep
