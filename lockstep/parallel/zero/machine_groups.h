// MachineGroups: the groups within a group of ranks on several machines, each with as many ranks. The ranks
// of a machine share memory. The ranks with the same place on their machines are a lane, over which data go
// from machine to machine.
//
//   ranks 0 1 2 3 on two machines:   machine 0: {0, 1}   machine 1: {2, 3}   lanes: {0, 2}, {1, 3}
//
//   const auto groups = MachineGroups::make(group);   // collective; null if the machines are not like that
//   comm::all_gather(groups->lane(), ...);            // each rank's part goes to each machine once
//   comm::barrier(groups->machine());                 // now all of this machine's ranks see all parts
//
// Fails    A rank that gives up must abort() all of these groups. Others wait for it in one of them, and do
//          not look at the others meanwhile.
// Lifetime the groups end with this object, or with the job.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

class MachineGroups {
 public:
  // Null on every rank: all are on one machine, or ranks of a machine have no memory in common, or machines
  // have different numbers of ranks.
  static std::unique_ptr<MachineGroups> make(const ProcessGroup& group);
  MachineGroups(ProcessGroup whole, ProcessGroup machine, ProcessGroup lane, std::vector<int> here,
                std::vector<int> in_lane);
  MachineGroups(const MachineGroups&) = delete;
  MachineGroups& operator=(const MachineGroups&) = delete;
  ~MachineGroups();

  const ProcessGroup& machine() const { return machine_; }
  const ProcessGroup& lane() const { return lane_; }
  // The ranks of both, as ranks of the whole group, in order.
  const std::vector<int>& here() const { return here_; }
  const std::vector<int>& in_lane() const { return in_lane_; }
  // Memory that each machine has once: all machines get what rank 0 of the whole group has written to its
  // own. Every rank calls it.
  void spread(void* memory, std::size_t bytes) const;
  // Ends both, and the whole group, with this failure, and with its text unless there is a better one.
  void abort(const std::exception_ptr& failure, std::string text = {}) const;

 private:
  const ProcessGroup whole_;
  const ProcessGroup machine_;
  const ProcessGroup lane_;
  const std::vector<int> here_;
  const std::vector<int> in_lane_;
};

}  // namespace lockstep
