#include "lockstep/comm/backends/messages/group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/group/split_agreement.h"
#include "lockstep/os/fork_generation.h"

namespace lockstep::messages {
namespace {

constexpr int ACTIVE_LIMIT = 8;  // collectives that move data at once; bounds their scratch memory
// What a rank tells the others in split().
struct Ticket {
  std::uint64_t arguments = 0;  // their hash
  std::uint64_t id = 0;         // of the new groups, from rank 0
};

}  // namespace

Group::Group(Membership membership)
    : membership_(std::move(membership)),
      made_in_(fork_generation()),
      recorder_(membership_.trace,
                {membership_.name, std::string(name()), rank(), size(), membership_.ranks}),
      calls_(size()),
      sent_(static_cast<std::size_t>(size())),
      left_(static_cast<std::size_t>(size())) {}

std::shared_ptr<Group> Group::make(Membership membership) {
  std::shared_ptr<Group> group(new Group(std::move(membership)));
  const Session session(group->fabric());
  group->fabric().add(group->id(), group);
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

Group::~Group() {
  if (forked()) {
    // The fabric's thread and lock are the parent's; nothing of it may be touched or ended here.
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory,bugprone-unhandled-exception-at-new)
    new std::shared_ptr<Running>(std::move(membership_.running));
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory,bugprone-unhandled-exception-at-new)
    new std::shared_ptr<Node>(std::move(membership_.node));
    return;
  }
  const std::lock_guard lock(fabric().mutex);
  if (!closed_) {
    empty_inbox();
    fabric().remove(id());
  }
}

bool Group::forked() const { return fork_generation() != made_in_; }

std::shared_ptr<WorkState> Group::start(Request request) {
  const bool message = request.verb == Verb::SEND || request.verb == Verb::RECV;
  const bool is_waited_for = !request.async_op;
  refuse_fork(std::string(name_of(request.verb)));
  Session session(fabric());
  if (!usable()) {
    throw_unusable(message ? std::string(name_of(request.verb)) : describe_own(request, calls_.last() + 1));
  }
  const auto disagreement = message ? std::nullopt : calls_.add(call_of(request));
  const std::shared_ptr<Operation> operation = make_operation(std::move(request));
  operation->record();
  pending_.push_back(operation);
  fabric().count_pending(1);
  if (disagreement) {
    record_disagreement(*disagreement);
  } else if (message) {
    operation->carry_on();
  } else {
    queued_.push_back(operation);
    activate_next();
  }
  session.settle();
  try {
    if (!message) fail_point("comm.posted");
  } catch (...) {
    operation->fail(std::current_exception());
    throw;
  }
  if (failure_) throw_unusable(operation->describe());
  if (!is_waited_for) fabric().serve_pending();
  return operation;
}

std::shared_ptr<Operation> Group::make_operation(Request request) {
  switch (request.verb) {
    case Verb::SEND: {
      const std::uint64_t number = sent_.at(static_cast<std::size_t>(request.root))++;
      return std::make_shared<SendOperation>(shared_from_this(), std::move(request), number);
    }
    case Verb::RECV: return std::make_shared<ReceiveOperation>(shared_from_this(), std::move(request));
    default:
      return std::make_shared<CollectiveOperation>(shared_from_this(), std::move(request), calls_.last());
  }
}

// Collectives with parts within nodes take turns, so that these come in the same order on all ranks of a node.
void Group::activate_next() {
  while (active_ < ACTIVE_LIMIT && !queued_.empty()) {
    const bool is_local = queued_.front()->has_local_parts();
    if (is_local && local_ > 0) return;
    ++active_;
    local_ += is_local ? 1 : 0;
    const std::shared_ptr<Operation> next = std::move(queued_.front());
    queued_.pop_front();
    fabric().ready(next);
  }
}

void Group::over(Operation& operation) {
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [&](const auto& other) { return other.get() == &operation; });
  if (found == pending_.end()) return;  // the whole group is over
  fabric().hold_until_unlocked(*found);
  pending_.erase(found);
  fabric().count_pending(-1);
  if (operation.sequence() == 0) return;
  --active_;
  local_ -= operation.has_local_parts() ? 1 : 0;
  activate_next();
}

std::shared_ptr<void> Group::allocate_shared(std::size_t bytes) {
  constexpr std::size_t ALIGNMENT = 64;
  refuse_fork("allocate_shared");
  {
    const Session session(fabric());
    if (!usable()) throw_unusable("allocate_shared");
  }
  if (node() && node()->local() != nullptr) return node()->local()->allocate_shared(bytes);
  const std::size_t size = (bytes / ALIGNMENT + 1) * ALIGNMENT;
  void* memory = std::aligned_alloc(ALIGNMENT, size);
  if (memory == nullptr) throw SystemError(str("allocate_shared: ", bytes, " bytes"), ENOMEM);
  std::memset(memory, 0, size);
  return {memory, std::free};
}

// The number of the new groups comes from this group's rank 0, which gives out each one once; together with that rank it is
// unique in the world. All ranks have registered their group before any of them can send to it.
std::shared_ptr<Backend> Group::split(const std::vector<std::vector<int>>& parts, const std::string& name,
                                      const GroupOptions& options) {
  const std::string arguments = describe_split(parts, name);
  Ticket mine{text_hash(arguments), 0};
  if (rank() == 0) {
    refuse_fork("split");
    const Session session(fabric());
    mine.id = (static_cast<std::uint64_t>(fabric().rank()) << 32U) + fabric().next_group();
  }
  const auto all = gather_from_all(*this, mine);
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const Ticket& theirs) { return theirs.arguments != all[0].arguments; });
  if (other != all.end()) {
    const std::string what =
        split_disagreement(*this, arguments, static_cast<std::size_t>(other - all.begin()));
    const Session session(fabric());
    record(mismatched(rank(), what));
    throw_unusable("split");
  }
  Node::Part here;
  if (node()) {
    finish_collectives();
    here = node()->split(parts, name, options);
  }
  std::shared_ptr<Backend> group = here.whole;
  const std::vector<int>* part = part_of(parts, rank());
  if (part != nullptr && !group) {
    Membership membership{membership_.running, all[0].id, {}, 0, name, membership_.carrier, options,
                          membership_.trace,   here.node};
    for (const int member : *part) {
      if (member == rank()) membership.rank = static_cast<int>(membership.ranks.size());
      membership.ranks.push_back(fabric_rank(member));
    }
    group = make(std::move(membership));
  }
  Request everybody;
  everybody.verb = Verb::BARRIER;
  start(std::move(everybody))->wait(std::nullopt);
  return group;
}

// What ranks of a node do together from here on comes behind the parts of all earlier collectives.
void Group::finish_collectives() {
  std::vector<std::shared_ptr<Operation>> earlier;
  {
    const Session session(fabric());
    earlier = pending_;
  }
  for (const auto& operation : earlier) {
    if (operation->sequence() != 0) operation->wait(std::nullopt);
  }
}

void Group::abort(const std::string& reason, ErrorCode code, int peer) {
  if (forked()) return;
  const Session session(fabric());
  record(aborted(rank(), reason, code, peer));
}

// What this rank has sent, the news of a failure above all, is to leave the process even if it ends next: a connection that
// is closed with something unread discards what it has not sent.
void Group::close() {
  constexpr std::chrono::milliseconds LONGEST{1000};
  if (forked()) return;
  Session session(fabric());
  if (closed_) return;
  closed_ = true;
  fail_all();
  recorder_.leave();
  Header goodbye;
  goodbye.kind = Kind::GOODBYE;
  send_to_all(goodbye);
  empty_inbox();
  fabric().remove(id());
  session.settle();
  if (node() && node()->local() != nullptr) node()->local()->close();
  const Deadline deadline = Deadline::in(LONGEST);
  while (id() == 0 && !fabric().flushed() && !deadline.expired())
    fabric().wait(session, Deadline::Clock::now() + std::chrono::milliseconds(1));
}

void Group::send_to_all(Header header, const std::string& text) const {
  header.group = id();
  for (int r = 0; r < size(); ++r) {
    if (r != rank() && !is_dead(r)) to(r).post(header, text);
  }
}

void Group::empty_inbox() {
  for (const auto& message : inbox_.take_all()) {
    if (message.header.kind == Kind::MESSAGE && !is_dead(message.source))
      to(message.source).consumed(message.header.bytes);
  }
}

}  // namespace lockstep::messages
