// meet_over_store: brings ranks that share a store to the meeting over which their group is made. They
// introduce themselves over the store and test whether they share a machine. If so, they meet again through
// sockets, which can pass descriptors. No globals: connect() and init_process_group() both use it.
//
//   MetOverStore met = meet_over_store({.meeting = ..., .local_rank = 0}, choice, deadline);
//   ProcessGroup group =
//       make_group(met.meeting(), met.backend, choice, met.place.local_rank, "world", options,
//                                   deadline);
//
// Who         every rank, with the same name. Blocks until all ranks have come.
// Throws      like connect().
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
  StoreMeetingOptions meeting;  // an empty local_address is chosen here
  int local_rank = -1;          // the number on this machine; -1 if no launcher gave one
  int virtual_ranks = 0;        // 0 if there are none
};

struct MetOverStore {
  std::unique_ptr<StoreMeeting> over_store;
  std::unique_ptr<Hub> hub;  // set if all ranks are on one machine and the backend needs it
  std::string backend;       // the meaning of "auto" in this job
  PlaceOnNode place;

  Meeting& meeting() const { return hub ? static_cast<Meeting&>(*hub) : *over_store; }
};

MetOverStore meet_over_store(MeetOverStoreOptions options, const BackendChoice& wanted, Deadline deadline);

// What each rank said of its machine.
struct Introduction;
std::vector<RankOnMachine> on_machines(const std::vector<Introduction>& all);
// The backends in the form that all ranks compare.
std::string text_of(const BackendChoice& wanted);

// Makes the group of all ranks of the meeting: with `backend` for host memory and, if `wanted` names one,
// another backend for devices.
ProcessGroup make_group(Meeting& meeting, const std::string& backend, const BackendChoice& wanted,
                        int local_rank, const std::string& name, const GroupOptions& options,
                        Deadline deadline);

}  // namespace lockstep
