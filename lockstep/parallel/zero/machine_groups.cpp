#include "lockstep/parallel/zero/machine_groups.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/exception_text.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/job/group_list.h"
#include "lockstep/job/groups.h"

namespace lockstep {
namespace {

using Machines = std::vector<std::vector<int>>;

bool are_alike(const Machines& machines) {
  return machines.size() > 1 && machines.front().size() > 1 &&
         std::all_of(machines.begin(), machines.end(),
                     [&](const auto& ranks) { return ranks.size() == machines.front().size(); });
}

}  // namespace

std::unique_ptr<MachineGroups> MachineGroups::make(const ProcessGroup& group) {
  const Machines machines = group.backend().machines();
  if (!are_alike(machines)) return nullptr;
  const auto mine = std::find_if(machines.begin(), machines.end(), [&](const auto& ranks) {
    return std::find(ranks.begin(), ranks.end(), group.rank()) != ranks.end();
  });
  const auto place = std::find(mine->begin(), mine->end(), group.rank()) - mine->begin();
  const auto machine = static_cast<int>(mine - machines.begin());
  const auto lane = static_cast<int>(place);
  std::vector<int> in_lane;
  for (const auto& ranks : machines) in_lane.push_back(ranks[static_cast<std::size_t>(place)]);
  // A rank that stands still is named by those of its lane and of its machine. The others wait for these, and
  // are told before they would name them.
  const auto patience = default_group_options().timeout / 4 * 5;
  ProcessGroup of_machine = split_group(
      group, machine, lane, NewGroupOptions{.timeout = patience, .name = group.name() + "/machine"});
  ProcessGroup of_lane = split_group(group, lane, machine, NewGroupOptions{.name = group.name() + "/lane"});
  return std::make_unique<MachineGroups>(group, std::move(of_machine), std::move(of_lane), *mine,
                                         std::move(in_lane));
}

MachineGroups::MachineGroups(ProcessGroup whole, ProcessGroup machine, ProcessGroup lane,
                             std::vector<int> here, std::vector<int> in_lane)
    : whole_(std::move(whole)),
      machine_(std::move(machine)),
      lane_(std::move(lane)),
      here_(std::move(here)),
      in_lane_(std::move(in_lane)) {}

MachineGroups::~MachineGroups() {
  destroy_process_group(lane_);
  destroy_process_group(machine_);
}

void MachineGroups::spread(void* memory, std::size_t bytes) const {
  const auto root = std::find(in_lane_.begin(), in_lane_.end(), 0);
  if (root != in_lane_.end() && bytes > 0) {
    const GroupRank place{static_cast<int>(root - in_lane_.begin())};
    comm::broadcast(lane_, memory, bytes, DType::UINT8, place).wait();
  }
  comm::barrier(machine_).wait();
}

void MachineGroups::abort(const std::exception_ptr& failure, std::string text) const {
  ErrorCode code = ErrorCode::ABORTED;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    code = error.code();
  } catch (...) {  // of the program, or of libtorch
  }
  if (text.empty()) text = exception_text(failure);
  for (const ProcessGroup& group : {machine_, lane_, whole_}) group.backend().abort(text, code, -1);
}

}  // namespace lockstep
