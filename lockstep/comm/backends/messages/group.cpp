#include "lockstep/comm/backends/messages/group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/collective.h"
#include "lockstep/comm/backends/messages/message_operations.h"
#include "lockstep/comm/group/split_agreement.h"

namespace lockstep::messages {

std::shared_ptr<Group> Group::make(Membership membership) {
  std::shared_ptr<Group> group(new Group(std::move(membership)));
  const Session session(group->fabric());
  group->fabric().add(group->roster().id(), group->core_);
  return group;
}

ProcessGroup Group::make_world(Connections connections, Membership membership) {
  membership.ranks.resize(connections.peers.size());
  std::iota(membership.ranks.begin(), membership.ranks.end(), 0);
  const auto running = std::make_shared<Running>(std::move(connections), membership.rank);
  membership.running = running;
  auto world = make(std::move(membership));
  running->start();
  return ProcessGroup(std::move(world));
}

std::shared_ptr<WorkState> Group::start(Request request) {
  const bool message = is_message(request.verb);
  const bool is_waited_for = !request.async_op;
  CallLog& log = core_->calls().log();
  roster().refuse_fork(name_of(request.verb));
  Session session(fabric());
  if (!core_->presence().is_member())
    core_->presence().throw_unusable(message ? std::string(name_of(request.verb))
                                             : describe_own(request, log.last() + 1));
  const auto disagreement = message ? std::nullopt : log.add(call_of(request));
  const std::shared_ptr<Operation> operation = make_operation(std::move(request));
  core_->begin(operation, disagreement);
  session.settle();
  try {
    if (!message) fail_point("comm.posted");
  } catch (...) {
    operation->fail(std::current_exception());
    throw;
  }
  if (core_->presence().failure()) core_->presence().throw_unusable(operation->describe());
  if (!is_waited_for) fabric().turns().serve_pending();
  return operation;
}

std::shared_ptr<Operation> Group::make_operation(Request request) {
  switch (request.verb) {
    case Verb::SEND: {
      const std::uint64_t number = core_->mailbox().next_number(request.root);
      return std::make_shared<SendOperation>(core_, std::move(request), number);
    }
    case Verb::RECV: return std::make_shared<ReceiveOperation>(core_, std::move(request));
    default:
      return std::make_shared<CollectiveOperation>(core_, std::move(request), core_->calls().log().last());
  }
}

std::shared_ptr<void> Group::allocate_shared(std::size_t bytes) {
  constexpr std::size_t ALIGNMENT = 64;
  roster().refuse_fork("allocate_shared");
  {
    const Session session(fabric());
    if (!core_->presence().is_member()) core_->presence().throw_unusable("allocate_shared");
  }
  const auto& node = roster().node();
  if (node && node->local() != nullptr) return node->local()->allocate_shared(bytes);
  const std::size_t size = (bytes / ALIGNMENT + 1) * ALIGNMENT;
  void* memory = std::aligned_alloc(ALIGNMENT, size);
  if (memory == nullptr) throw SystemError(str("allocate_shared: ", bytes, " bytes"), ENOMEM);
  std::memset(memory, 0, size);
  return {memory, std::free};
}

std::vector<std::vector<int>> Group::machines() const {
  return roster().node() ? roster().node()->nodes() : algorithms::Nodes();
}

// The id of the new groups comes from the first of the ranks that make them. That rank gives out each number
// once, so number and rank together are unique in the world.
std::uint64_t Group::agree_on_id(const SplitRequest& split) {
  const int leader = split.callers == SplitRequest::Callers::MEMBERS ? split.parts.front().front() : 0;
  std::uint64_t id = 0;
  if (rank() == leader) {
    roster().refuse_fork(name_of(split.callers));
    const Session session(fabric());
    id = (static_cast<std::uint64_t>(fabric().rank()) << 32U) + fabric().next_group();
  }
  const SplitAgreement all = agree_on_split(*this, split, id);
  if (all.disagreement) {
    const Session session(fabric());
    core_->record(mismatched(rank(), *all.disagreement));
    core_->presence().throw_unusable(std::string(name_of(split.callers)));
  }
  return all.numbers[static_cast<std::size_t>(leader)];
}

// All callers have made their group before any of them can send to it.
std::shared_ptr<Backend> Group::make_groups(const SplitRequest& split) {
  const std::uint64_t id = agree_on_id(split);
  Node::Part here;
  if (roster().node()) {
    // A group that only its members make needs no order among the collectives of this group.
    if (split.callers == SplitRequest::Callers::EVERY_RANK) finish_collectives();
    here = roster().node()->split(split);
  }
  std::shared_ptr<Backend> group = here.whole;
  const std::vector<int>* part = part_of(split.parts, rank());
  if (part != nullptr && !group) {
    const Membership& mine = roster().membership();
    group = make_part(
        *part, {mine.running, id, {}, 0, split.name, mine.carrier, split.options, mine.trace, here.node});
  }
  await_callers(*this, split);
  return group;
}

std::shared_ptr<Group> Group::make_part(const std::vector<int>& part, Membership membership) const {
  for (const int member : part) {
    if (member == rank()) membership.rank = static_cast<int>(membership.ranks.size());
    membership.ranks.push_back(roster().fabric_rank(member));
  }
  return make(std::move(membership));
}

// Parts that ranks of a node run together from here on come after the local parts of all earlier collectives.
void Group::finish_collectives() {
  CallBook::Operations earlier;
  {
    const Session session(fabric());
    earlier = core_->calls().pending();
  }
  for (const auto& operation : earlier) {
    if (operation->is_collective()) operation->wait(std::nullopt);
  }
}

void Group::abort(const std::string& reason, ErrorCode code, int peer) {
  if (roster().is_fork()) return;
  const Session session(fabric());
  core_->record(aborted(rank(), reason, code, peer));
}

// Waits until the data that this rank has sent, above all the news of a failure, will leave the process even
// if the process ends next. A socket that is closed with unread data discards what it has not sent. After the
// last group the thread is ended, too, although wrappers may still hold the group: the program may call
// MPI_Finalize next, and MPICH aborts there when it finds a thread inside a call.
void Group::close() {
  constexpr std::chrono::milliseconds LONGEST{1000};
  if (roster().is_fork()) return;
  {
    Session session(fabric());
    if (core_->presence().has_left()) return;
    core_->leave();
    session.settle();
    const auto& node = roster().node();
    if (node && node->local() != nullptr) node->local()->close();
    const Deadline deadline = Deadline::in(LONGEST);
    while (roster().id() == 0 && !fabric().lines().flushed() && !deadline.expired())
      fabric().wait(session, Deadline::Clock::now() + std::chrono::milliseconds(1));
    if (fabric().has_groups()) return;
  }
  roster().membership().running->end(Deadline::in(LONGEST));
}

void Group::check_peers() {
  roster().refuse_fork(A_WAIT_OUTSIDE);
  const Session session(fabric());
  const Presence& presence = core_->presence();
  for (int r = 0; r < size() && presence.is_member(); ++r) {
    if (r != rank() && roster().is_dead(r) && !roster().has_left(r)) {
      const auto lost = roster().describe_lost(r, core_->calls().log().last_call_of(r));
      core_->record(peer_lost(rank(), lost, A_WAIT_OUTSIDE, {}, {}));
    }
  }
  if (!presence.is_member()) presence.throw_unusable(A_WAIT_OUTSIDE);
}

}  // namespace lockstep::messages
