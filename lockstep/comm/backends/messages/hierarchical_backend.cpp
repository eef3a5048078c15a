#include "lockstep/comm/backends/messages/hierarchical_backend.h"

#include <algorithm>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/exception_text.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/group.h"
#include "lockstep/comm/backends/shared/shm_backend.h"
#include "lockstep/comm/meeting/same_machine.h"

namespace lockstep {
namespace {

using algorithms::Nodes;

// Some ranks of a meeting as a meeting of their own. All other ranks must do the same at the same time,
// because each exchange is one of the whole meeting.
class PartOfMeeting : public Meeting {
 public:
  PartOfMeeting(Meeting& whole, std::vector<int> ranks) : whole_(whole), ranks_(std::move(ranks)) {
    set_caller(whole.caller());
  }

  int rank() const override {
    return static_cast<int>(std::find(ranks_.begin(), ranks_.end(), whole_.rank()) - ranks_.begin());
  }
  int size() const override { return static_cast<int>(ranks_.size()); }
  bool passes_descriptors() const override { return false; }
  std::string local_address() const override { return whole_.local_address(); }
  std::optional<std::string> secret() const override { return whole_.secret(); }
  std::vector<Message> exchange(const std::string& text, const std::vector<int>&,
                                Deadline deadline) override {
    std::vector<Message> all = whole_.exchange(text, {}, deadline);
    std::vector<Message> ours;
    for (const int rank : ranks_) ours.push_back(std::move(all[static_cast<std::size_t>(rank)]));
    return ours;
  }

 private:
  Meeting& whole_;
  const std::vector<int> ranks_;
};

const std::vector<int>& node_of(const Nodes& nodes, int rank) {
  return *std::find_if(nodes.begin(), nodes.end(), [rank](const auto& node) {
    return std::find(node.begin(), node.end(), rank) != node.end();
  });
}

struct FoundNodes {
  Nodes nodes;
  std::unique_ptr<Hub> hub;  // of this rank's node; null if it is alone there
};

// Ranks that seem to share a machine prove it by passing a descriptor. A rank whose proof fails is a node of
// its own.
FoundNodes find_nodes(Meeting& meeting, Deadline deadline) {
  const Nodes perhaps = ranks_by_machine(meeting, deadline);
  PartOfMeeting part(meeting, node_of(perhaps, meeting.rank()));
  SameMachineProof proof(part);
  const auto offers = part.exchange(proof.offer(), {}, deadline);
  FoundNodes found;
  found.hub = proof.run(offers.front().text, deadline);
  if (part.size() == 1) found.hub.reset();
  const std::string leader = std::to_string(node_of(perhaps, meeting.rank()).front());
  found.nodes = ranks_by_text(meeting, found.hub ? leader : str("rank ", meeting.rank(), " alone"), deadline);
  return found;
}

// Returns, by rank, the memory of each other rank of this machine that this rank can read.
std::vector<std::optional<PeerMemory>> memories_of(Meeting& meeting, const std::vector<int>& here,
                                                   const std::vector<messages::PeerProcess>& peers,
                                                   Deadline deadline) {
  const auto introductions = meeting.exchange(PeerMemory::introduction(), {}, deadline);
  std::vector<std::optional<PeerMemory>> memories(peers.size());
  for (const int rank : here) {
    const auto r = static_cast<std::size_t>(rank);
    PeerMemory memory(static_cast<pid_t>(peers[r].pid), introductions[r].text);
    if (rank != meeting.rank() && memory.can_be_read()) memories[r] = memory;
  }
  return memories;
}

// Every rank throws if one has failed, and names that rank. Ranks of other machines learn of it only here.
void tell_failures(Meeting& meeting, const std::exception_ptr& mine, Deadline deadline) {
  const auto all = meeting.exchange(mine ? exception_text(mine) : "", {}, deadline);
  if (mine) std::rethrow_exception(mine);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r].text.empty())
      throw Aborted(str(meeting.place(), ": rank ", r, " failed: ", printable(all[r].text)));
  }
}

}  // namespace

ProcessGroup make_hierarchical_group(const messages::Carrier& carrier, Meeting& meeting,
                                     const std::string& group_name, const GroupOptions& options,
                                     Deadline deadline) {
  const FoundNodes found = find_nodes(meeting, deadline);
  const auto size = static_cast<std::size_t>(meeting.size());
  if (found.nodes.size() == 1 && size > 1) return make_shm_group(*found.hub, group_name, options, deadline);
  if (found.nodes.size() == size)
    return messages::make_group(carrier, meeting, group_name, options, deadline);
  const auto trace = TraceMemory::create(meeting.rank(), meeting.size());
  const std::vector<int>& here = node_of(found.nodes, meeting.rank());
  std::shared_ptr<Backend> local;
  std::exception_ptr failure;
  try {
    if (found.hub) {
      local = make_shm_group(*found.hub, str(group_name, "/node of rank ", here.front()),
                             messages::Node::without_deadlines(), deadline, here, trace)
                  .shared_backend();
    }
  } catch (const Error&) {
    failure = std::current_exception();
  }
  tell_failures(meeting, failure, deadline);
  messages::Connections connections = carrier.connect(meeting, options, deadline);
  connections.memories = memories_of(meeting, here, connections.peers, deadline);
  return messages::Group::make_world(
      std::move(connections), {.rank = meeting.rank(),
                               .name = group_name,
                               .carrier = &carrier,
                               .options = options,
                               .trace = trace,
                               .node = messages::Node::make(found.nodes, meeting.rank(), std::move(local))});
}

}  // namespace lockstep
