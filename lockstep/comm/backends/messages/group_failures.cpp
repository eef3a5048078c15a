// Group: failures, and waiting until there is one or the work is done.
#include <algorithm>

#include "lockstep/base/exception_text.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/group.h"
#include "lockstep/os/fork_generation.h"

namespace lockstep::messages {
namespace {

using Clock = Deadline::Clock;

// Ranks that only wait for each other tell each other what they called after this time.
constexpr std::chrono::milliseconds SILENCE{20};
// Who waits looks this often after groups over shared memory of this process, which have no thread of their own.
constexpr std::chrono::milliseconds HELP{1};
constexpr std::chrono::seconds LOOK{1};  // after machines that do not answer
constexpr std::size_t MOST_NAMED = 8;    // of those that a rank waits for
constexpr std::chrono::hours LONGEST_WAIT{24 * 365 * 10};

double seconds(std::chrono::nanoseconds span) { return std::chrono::duration<double>(span).count(); }

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

void Group::refuse_fork(const std::string& what) const {
  if (!forked()) return;
  throw Aborted(
      str(what, " on group \"", group_name(), "\", rank ", rank(), " of ", size(), ": ", IS_A_FORK));
}

void Group::throw_unusable(const std::string& what) const {
  const std::string where = str(what, " on ", own_place(), ": ");
  if (!failure_) throw Aborted(where + "this rank has left the group (destroy_process_group)");
  constexpr const char* ADVICE =
      "; the group is closed: destroy_process_group(), then init_process_group() to start anew";
  std::string text = failure_->text;
  if (failure_->reporter != rank()) text += str(" (found by rank ", failure_->reporter, ")");
  throw_error(failure_->code, where + text + ADVICE + trace_note_, failure_->peer);
}

std::exception_ptr Group::failure_of(const std::string& what) const {
  try {
    throw_unusable(what);
  } catch (...) {
    return std::current_exception();
  }
}

void Group::record(ErrorCode code, const std::string& text, int peer) {
  if (usable()) fail_with({code, text, peer, rank()});
}

// Also one that another rank found is passed on: this rank may now leave or end because of it, and nobody is to take that for
// the cause.
void Group::fail_with(Failure failure) {
  if (failure_) return;
  failure_ = std::move(failure);
  fabric().group_failed();
  Header header;
  header.kind = Kind::FAILURE;
  header.count = static_cast<std::uint64_t>(failure_->code);
  header.root = failure_->peer;
  header.label = static_cast<std::uint32_t>(failure_->reporter);
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
  record(ErrorCode::ABORTED,
         str("rank ", rank(), " gave up ", operation.describe(), ": ", exception_text(error)));
}

void Group::record_disagreement(const CallLog::Disagreement& disagreement) {
  record(ErrorCode::MISMATCH, describe_disagreement(disagreement.sequence, rank(), disagreement.mine,
                                                    disagreement.rank, disagreement.theirs));
}

std::string Group::describe(int rank) const {
  const int global = fabric_rank(rank);
  const PeerProcess& peer = fabric().peer(global);
  return str("rank ", rank, " (", global == rank ? "" : str("rank ", global, " of the world, "), "pid ",
             peer.pid, " at ", peer.address, ")");
}

std::string Group::own_place() const {
  const int global = fabric_rank(rank());
  return str("group \"", group_name(), "\", rank ", rank(), " of ", size(),
             global == rank() ? "" : str(" (rank ", global, " of the world)"));
}

std::string Group::how_gone(int rank) const {
  if (has_left(rank)) return " has left the group";
  const std::string& reason = fabric().lost(fabric_rank(rank));
  if (reason == "end of stream" || reason == "Connection reset by peer" || reason == "Broken pipe")
    return " is dead";
  return " cannot be reached (" + reason + ")";
}

void Group::record_gone(int rank, const Operation& operation) {
  const std::string last = calls_.last_call_of(rank);
  record(ErrorCode::PEER_LOST,
         str(describe(rank), how_gone(rank), " while rank ", this->rank(), " was in ", operation.describe(),
             direction(operation, rank), "; ",
             last.empty() ? "it had made no collective call" : "its last collective call was " + last,
             has_left(rank) ? operation.usual_cause() : std::string()),
         rank);
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
  std::string text;
  for (std::size_t i = 0; i < late.size(); ++i) {
    if (i == MOST_NAMED) return text + str(" and ", late.size() - i, " more");
    const int r = late[i];
    if (r == ANY_SOURCE) return "a message from any rank";
    const std::string last = calls_.last_call_of(r);
    text += str(text.empty() ? "" : ", ", describe(r), direction(operation, r));
    if (!last.empty()) text += str(" (last collective call: ", last, ")");
  }
  return text.empty() ? "the other ranks to finish their part" : text;
}

void Group::check_peers() {
  constexpr const char* WHAT = "a wait outside of the group";
  refuse_fork(WHAT);
  const Session session(fabric());
  for (int r = 0; r < size() && usable(); ++r) {
    if (r != rank() && is_dead(r) && !has_left(r))
      record(ErrorCode::PEER_LOST, str(describe(r), how_gone(r), " while rank ", rank(), " was in ", WHAT),
             r);
  }
  if (!usable()) throw_unusable(WHAT);
}

void Group::warn(const Operation& operation, std::chrono::nanoseconds waited) const {
  log(LogLevel::WARNING, str(operation.describe(), " on ", own_place(), ": waiting for ", seconds(waited),
                             " s for ", who_is_late(operation)));
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
  const auto patience =
      std::min<std::chrono::nanoseconds>(timeout.value_or(membership_.options.timeout), LONGEST_WAIT);
  const auto warn_after = std::min<std::chrono::nanoseconds>(membership_.options.warn_after, LONGEST_WAIT);
  auto changed = Clock::now();
  auto warned = changed;
  auto look = changed + LOOK;
  std::uint64_t progress = operation.progress();
  const bool helps = node() && node()->local() != nullptr;
  std::optional<Node::Helper> helper;
  if (helps) helper.emplace(*node());
  session.settle();
  while (operation.pending()) {
    const auto now = Clock::now();
    if (operation.progress() != progress) {
      progress = operation.progress();
      changed = warned = now;
    } else if (now - changed >= patience) {
      const std::vector<int> late = late_ranks(operation);
      record(ErrorCode::TIMEOUT,
             str("no progress for ", seconds(patience), " s, waiting for ", who_is_late(operation),
                 operation.usual_cause()),
             late.empty() ? -1 : late.front());
      break;
    } else if (now - warned >= warn_after) {
      warn(operation, now - changed);
      warned = now;
    }
    if (now >= look) {
      fabric().end_silent();
      look = now + LOOK;
    }
    announce_after_a_while();
    session.settle();
    if (helper) help(session, *helper);
    if (!operation.pending()) break;
    const bool announcing = operation.sequence() != 0 && announced_ < operation.sequence();
    const auto next = std::min({changed + patience, warned + warn_after, look});
    auto until = announcing ? std::min(next, now + SILENCE) : next;
    if (helps)
      until =
          std::min(until, now + std::clamp<std::chrono::nanoseconds>((now - changed) / 10, HELP, 10 * HELP));
    fabric().wait(session, until);
    if (!helps || !operation.pending()) continue;
    session.lock().unlock();
    node()->local()->help();
    session.lock().lock();
  }
  fabric().serve_pending();
}

}  // namespace lockstep::messages
