#include "lockstep/job/meet_over_store.h"

#include <algorithm>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/nccl/backend.h"
#include "lockstep/comm/meeting/same_machine.h"
#include "lockstep/job/introduction.h"
#include "lockstep/os/kernel_features.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/tcp_socket.h"
#include "lockstep/store/tcp_store.h"

namespace lockstep {
namespace {

std::string own_address(const StoreMeetingOptions& meeting) {
  if (const auto interface = env("LOCKSTEP_SOCKET_IFNAME")) return interface_address(*interface);
  const auto* const tcp = dynamic_cast<const TcpStore*>(meeting.store.get());
  return tcp != nullptr ? tcp->local_address().host : StoreMeetingOptions().local_address;
}

// If the ranks are on several machines, each needs an address that the other machines can reach.
void check_addresses(const std::vector<Introduction>& all, const std::string& caller) {
  const auto is_elsewhere = [&](const Introduction& rank) {
    return rank.boot_id != all[0].boot_id || !is_loopback(rank.address);
  };
  if (std::none_of(all.begin(), all.end(), is_elsewhere)) return;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!is_loopback(all[r].address)) continue;
    throw InvalidArgument(str(caller, ": rank ", r, " would be reached at ", printable(all[r].address),
                              ", an address that only its own machine can use; set LOCKSTEP_SOCKET_IFNAME to "
                              "the network interface that the "
                              "other machines reach, or MASTER_ADDR to its address in digits"));
  }
}

}  // namespace

std::vector<RankOnMachine> on_machines(const std::vector<Introduction>& all) {
  std::vector<RankOnMachine> ranks;
  for (const Introduction& rank : all) ranks.push_back({rank.boot_id, rank.local_rank});
  return ranks;
}

std::string text_of(const BackendChoice& wanted) {
  return wanted.cuda.empty() ? wanted.cpu : str("cpu:", wanted.cpu, ",cuda:", wanted.cuda);
}

// The introductions come first, so that a mismatch is reported before any rank waits in the test for a common
// machine. Only backends that need a common machine make that test.
MetOverStore meet_over_store(MeetOverStoreOptions options, const BackendChoice& wanted, Deadline deadline) {
  StoreMeetingOptions& meeting = options.meeting;
  if (meeting.local_address.empty()) meeting.local_address = own_address(meeting);
  const int rank = meeting.rank;
  MetOverStore met;
  met.backend = wanted.cpu;
  met.over_store = std::make_unique<StoreMeeting>(meeting);
  SameMachineProof proof(*met.over_store);
  const std::vector<Introduction> all = introduce(*met.over_store,
                                                  {.backend = text_of(wanted),
                                                   .virtual_ranks = options.virtual_ranks,
                                                   .local_rank = options.local_rank,
                                                   .job = pack(meeting.job),
                                                   .boot_id = boot_id(),
                                                   .address = meeting.local_address,
                                                   .offer = proof.offer()},
                                                  deadline, meeting.caller);
  check_addresses(all, meeting.caller);
  met.place = place_on_node(on_machines(all), rank);
  if (wanted.cpu != "auto" && wanted.cpu != "shm") return met;
  met.hub = proof.run(all[0].offer, deadline);
  if (!met.hub && wanted.cpu == "shm") {
    throw InvalidArgument(
        str(meeting.caller, ", rank ", rank, " of ", meeting.size,
            ": backend \"shm\" needs all ranks on one machine, and they are not; use hierarchical "
            "or auto"));
  }
  // Without memfd the ranks cannot share a segment.
  met.backend = met.hub ? "shm" : kernel_has(KernelFeature::MEMFD) ? "hierarchical" : "tcp";
  return met;
}

ProcessGroup make_group(Meeting& meeting, const std::string& backend, const BackendChoice& wanted,
                        int local_rank, const std::string& name, const GroupOptions& options,
                        Deadline deadline) {
  const std::string cpu_name = wanted.cuda.empty() ? name : cpu_group_name(name);
  ProcessGroup made = find_backend(backend, meeting.size()).make(meeting, cpu_name, options, deadline);
  if (wanted.cuda.empty()) return made;
  return make_nccl_group(wanted.cuda, made, name, options, local_rank);
}

}  // namespace lockstep
