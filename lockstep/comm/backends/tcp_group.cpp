#include "lockstep/comm/backends/tcp_group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/os/fork_generation.h"

namespace lockstep::tcp {
namespace {

constexpr int ACTIVE_LIMIT = 8;  // collectives that move data at once; bounds their scratch memory
constexpr std::uint64_t SAME = 0xcbf29ce484222325U;

// FNV-1a over what all ranks must give to split() alike.
std::uint64_t digest(const std::vector<std::vector<int>>& parts, const std::string& name) {
  std::uint64_t hash = SAME;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3U; };
  for (const auto& part : parts) {
    add(part.size());
    for (const int rank : part) add(static_cast<std::uint64_t>(rank));
  }
  for (const char c : name) add(static_cast<unsigned char>(c));
  return hash;
}

}  // namespace

Group::Group(Membership membership)
    : membership_(std::move(membership)),
      made_in_(fork_generation()),
      calls_(size()),
      sent_(static_cast<std::size_t>(size())),
      left_(static_cast<std::size_t>(size())) {}

std::shared_ptr<Group> Group::make(Membership membership) {
  std::shared_ptr<Group> group(new Group(std::move(membership)));
  const Session session(group->fabric());
  group->fabric().add(group->id(), group);
  return group;
}

Group::~Group() {
  if (forked()) {
    // The fabric's thread and lock are the parent's; nothing of it may be touched or ended here.
    new std::shared_ptr<Running>(std::move(membership_.running));  // NOLINT(cppcoreguidelines-owning-memory)
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
  refuse_fork(std::string(name_of(request.verb)));
  Session session(fabric());
  if (!usable()) {
    throw_unusable(message ? std::string(name_of(request.verb))
                           : str(name_of(request.verb), " #", calls_.last() + 1));
  }
  const auto disagreement = message ? std::nullopt : calls_.add(call_of(request));
  const std::shared_ptr<Operation> operation = make_operation(std::move(request));
  pending_.push_back(operation);
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

void Group::activate_next() {
  while (active_ < ACTIVE_LIMIT && !queued_.empty()) {
    ++active_;
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
  if (operation.sequence() == 0) return;
  --active_;
  activate_next();
}

std::shared_ptr<void> Group::allocate_shared(std::size_t bytes) {
  constexpr std::size_t ALIGNMENT = 64;
  refuse_fork("allocate_shared");
  {
    const Session session(fabric());
    if (!usable()) throw_unusable("allocate_shared");
  }
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
  const std::uint64_t mine = digest(parts, name);
  std::vector<std::uint64_t> words = {0, mine, ~mine};
  if (rank() == 0) {
    const Session session(fabric());
    words[0] = (static_cast<std::uint64_t>(fabric().rank()) << 32U) + fabric().next_group();
  }
  Request agreement;
  agreement.verb = Verb::ALL_REDUCE;
  agreement.dtype = DType::UINT64;
  agreement.op = ReduceOp::MAX;
  agreement.count = words.size();
  agreement.input = agreement.output = words.data();
  start(std::move(agreement))->wait(std::nullopt);
  if (words[1] != mine || words[2] != ~mine) {
    const Session session(fabric());
    record(ErrorCode::MISMATCH,
           "ranks disagree about the groups to make; all ranks must name the same ranks in the same order");
    throw_unusable("new group \"" + name + "\"");
  }
  std::shared_ptr<Group> group;
  for (const auto& part : parts) {
    const auto place = std::find(part.begin(), part.end(), rank());
    if (place == part.end()) continue;
    Membership membership{
        membership_.running, words[0], {}, static_cast<int>(place - part.begin()), name, options};
    for (const int member : part) membership.ranks.push_back(fabric_rank(member));
    group = make(std::move(membership));
  }
  start({.verb = Verb::BARRIER})->wait(std::nullopt);
  return group;
}

void Group::abort(const std::string& reason) {
  if (forked()) return;
  const Session session(fabric());
  record(ErrorCode::ABORTED, str("rank ", rank(), " aborted the group: ", reason));
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
  Header goodbye;
  goodbye.kind = Kind::GOODBYE;
  send_to_all(goodbye);
  empty_inbox();
  fabric().remove(id());
  session.settle();
  const Deadline deadline = Deadline::in(LONGEST);
  while (id() == 0 && !fabric().flushed() && !deadline.expired())
    fabric().changed.wait_for(session.lock(), std::chrono::milliseconds(1));
}

void Group::send_to_all(Header header, const std::string& text) {
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

}  // namespace lockstep::tcp
