// Group: failures, and waiting until there is one or the work is done.
#include <algorithm>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/group.h"
#include "lockstep/comm/group/progress_clock.h"

namespace lockstep::messages {
namespace {

using Clock = Deadline::Clock;

// Ranks that only wait for each other tell each other what they called after this time.
constexpr std::chrono::milliseconds SILENCE{20};
// Who waits looks this often after groups over shared memory of this process, which have no thread of their own.
constexpr std::chrono::milliseconds HELP{1};
constexpr std::chrono::seconds LOOK{1};  // after machines that do not answer

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string direction(const Operation& operation, int rank) {
  if (contains(operation.receiving_from(), rank)) return ", waiting to receive from it";
  if (contains(operation.sending_to(), rank)) return ", waiting to send to it";
  if (contains(operation.waiting_in_node(), rank)) return ", waiting for what it shares on this machine";
  return "";
}

}  // namespace

GroupPlace Group::place() const {
  return {.group = group_name(), .rank = rank(), .size = size(), .world_rank = fabric_rank(rank())};
}

void Group::refuse_fork(const std::string& what) const {
  if (forked()) throw_forked(what, place());
}

void Group::throw_unusable(const std::string& what) const {
  if (!failure_) throw_left(what, place());
  throw_failure(what, place(), *failure_, trace_note_);
}

std::exception_ptr Group::failure_of(const std::string& what) const {
  try {
    throw_unusable(what);
  } catch (...) {
    return std::current_exception();
  }
}

void Group::record(GroupFailure failure) {
  if (usable()) fail_with(std::move(failure));
}

// Also one that another rank found is passed on: this rank may now leave or end because of it, and nobody is to take that for
// the cause.
void Group::fail_with(GroupFailure failure) {
  if (failure_) return;
  failure_ = std::move(failure);
  fabric().group_failed();
  Header header;
  header.kind = Kind::FAILURE;
  header.count = static_cast<std::uint64_t>(failure_->code);
  header.root = failure_->peer;
  header.label = static_cast<std::uint32_t>(failure_->reporter);
  header.op = static_cast<std::uint8_t>(failure_->kind);
  send_to_all(header, failure_->text);
  trace_note_ = recorder_.note_failure(failure_->text, failure_->code, failure_->peer, failure_->reporter);
  fail_all();
  empty_inbox();
}

void Group::fail_all() {
  const auto operations = std::exchange(pending_, {});
  fabric().count_pending(-static_cast<std::ptrdiff_t>(operations.size()));
  queued_.clear();
  for (const auto& operation : operations) {
    operation->fail(failure_of(operation->describe()));
    fabric().hold_until_unlocked(operation);
  }
}

void Group::give_up(const Operation& operation, const std::exception_ptr& error) {
  record(given_up(rank(), operation.describe(), error));
}

void Group::record_disagreement(const CallLog::Disagreement& disagreement) {
  record(mismatched(rank(), describe_disagreement(disagreement.sequence, rank(), disagreement.mine,
                                                  disagreement.rank, disagreement.theirs)));
}

std::string Group::describe(int rank) const {
  const int global = fabric_rank(rank);
  const PeerProcess& peer = fabric().peer(global);
  return str("rank ", rank, " (", global == rank ? "" : str("rank ", global, " of the world, "), "pid ",
             peer.pid, " at ", peer.address, ")");
}

LostPeer Group::describe_lost(int rank) const {
  const bool is_dead = fabric().end_of(fabric_rank(rank)) == StreamEnd::PEER;
  return {.rank = rank,
          .description = describe(rank),
          .has_left = has_left(rank),
          .unreachable = is_dead ? std::string() : fabric().why_ended(fabric_rank(rank)),
          .last_call = calls_.last_call_of(rank)};
}

void Group::record_gone(int rank, const Operation& operation) {
  record(peer_lost(this->rank(), describe_lost(rank), operation.describe(), direction(operation, rank),
                   operation.usual_cause()));
}

// Those that have not made this call at all, down to the end of the chain: who it exchanges something with may be waiting too.
std::vector<int> Group::late_ranks(const Operation& operation) const {
  std::vector<int> direct = operation.receiving_from();
  for (const auto& more : {operation.sending_to(), operation.waiting_in_node()}) {
    std::copy_if(more.begin(), more.end(), std::back_inserter(direct),
                 [&](int r) { return !contains(direct, r); });
  }
  std::vector<int> late;
  if (operation.sequence() != 0) late = calls_.late(operation.sequence(), rank(), direct);
  return late.empty() ? direct : late;
}

std::string Group::who_is_late(const Operation& operation) const {
  const std::vector<int> late = late_ranks(operation);
  const auto is_any = std::find(late.begin(), late.end(), ANY_SOURCE);
  if (is_any != late.end()) return "a message from any rank";
  return list_of_late(late, [&](int r) {
    const std::string last = calls_.last_call_of(r);
    return describe(r) + direction(operation, r) +
           (last.empty() ? "" : str(" (last collective call: ", last, ")"));
  });
}

void Group::check_peers() {
  refuse_fork(A_WAIT_OUTSIDE);
  const Session session(fabric());
  for (int r = 0; r < size() && usable(); ++r) {
    if (r != rank() && is_dead(r) && !has_left(r))
      record(peer_lost(rank(), describe_lost(r), A_WAIT_OUTSIDE, {}, {}));
  }
  if (!usable()) throw_unusable(A_WAIT_OUTSIDE);
}

void Group::announce(const CollectiveOperation& operation) {
  Header header = operation.header();
  header.kind = Kind::CALL;
  send_to_all(header);
}

void Group::announce_after_a_while() {
  const auto oldest = std::find_if(pending_.begin(), pending_.end(),
                                   [](const auto& operation) { return operation->sequence() != 0; });
  if (oldest == pending_.end() || (*oldest)->sequence() == announced_) return;
  const auto now = Clock::now();
  if (waiting_for_ != (*oldest)->sequence()) {
    waiting_for_ = (*oldest)->sequence();
    waiting_since_ = now;
  } else if (now - waiting_since_ >= SILENCE) {
    announced_ = waiting_for_;
    announce(static_cast<const CollectiveOperation&>(**oldest));
  }
}

// Until there is nothing to help with. Parts are posted with the lock, so none is overlooked.
void Group::help(Session& session, Node::Helper& helper) {
  while (helper.has_work()) {
    session.lock().unlock();
    helper.work();
    session.lock().lock();
    session.settle();
  }
}

void Group::wait(Session& session, Operation& operation, std::optional<std::chrono::nanoseconds> timeout) {
  ProgressClock clock(timeout.value_or(membership_.options.timeout), membership_.options.warn_after);
  auto look = Clock::now() + LOOK;
  const bool helps = node() && node()->local() != nullptr;
  std::optional<Node::Helper> helper;
  if (helps) helper.emplace(*node());
  session.settle();
  while (operation.pending()) {
    const auto now = Clock::now();
    const auto verdict = clock.look(now, operation.progress());
    if (verdict == ProgressClock::Verdict::TIMEOUT) {
      const std::vector<int> late = late_ranks(operation);
      record(timed_out(rank(), clock.timeout(), who_is_late(operation), operation.usual_cause(),
                       late.empty() ? -1 : late.front()));
      break;
    }
    if (verdict == ProgressClock::Verdict::WARN)
      log(LogLevel::WARNING,
          waiting_text(operation.describe(), place(), clock.waited(now), who_is_late(operation)));
    if (now >= look) {
      fabric().end_silent();
      look = now + LOOK;
    }
    announce_after_a_while();
    session.settle();
    if (helper) help(session, *helper);
    if (!operation.pending()) break;
    const bool announcing = operation.sequence() != 0 && announced_ < operation.sequence();
    const auto next = std::min(clock.next(), look);
    auto until = announcing ? std::min(next, now + SILENCE) : next;
    if (helps)
      until = std::min(until,
                       now + std::clamp<std::chrono::nanoseconds>(clock.waited(now) / 10, HELP, 10 * HELP));
    fabric().wait(session, until);
    if (!helps || !operation.pending()) continue;
    session.lock().unlock();
    node()->local()->help();
    session.lock().lock();
  }
  fabric().serve_pending();
}

}  // namespace lockstep::messages
