#include "lockstep/comm/backends/messages/core.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/collective.h"

namespace lockstep::messages {
namespace {

constexpr auto LAST_CODE = static_cast<std::uint64_t>(ErrorCode::BACKEND);

Header header_of(const GroupFailure& failure) {
  Header header;
  header.kind = Kind::FAILURE;
  header.count = static_cast<std::uint64_t>(failure.code);
  header.root = failure.peer;
  header.label = static_cast<std::uint32_t>(failure.reporter);
  header.op = static_cast<std::uint8_t>(failure.kind);
  return header;
}

GroupFailure failure_in(const Header& header, const std::vector<std::byte>& payload) {
  return {static_cast<ErrorCode>(std::min<std::uint64_t>(header.count, LAST_CODE)),
          std::string(reinterpret_cast<const char*>(payload.data()), payload.size()), header.root,
          static_cast<int>(header.label), static_cast<MismatchKind>(header.op & 1U)};
}

// Tells the other ranks which collective this rank has called.
void announce(const Roster& roster, const Operation& operation) {
  Header header;
  header.kind = Kind::CALL;
  header.sequence = operation.sequence();
  header.set(call_of(operation.request()));
  roster.send_to_all(header);
}

GroupFailure failure_of(const CallLog::Disagreement& disagreement, int rank) {
  return mismatched(rank, describe_disagreement(disagreement.sequence, rank, disagreement.mine,
                                                disagreement.rank, disagreement.theirs));
}

}  // namespace

Core::Core(Membership membership)
    : roster_(std::move(membership)),
      presence_(roster_.place()),
      recorder_(roster_.membership().trace, {roster_.membership().name, std::string(roster_.backend_name()),
                                             roster_.rank(), roster_.size(), roster_.membership().ranks}),
      calls_(roster_.size()),
      mailbox_(roster_) {}

Core::~Core() {
  if (roster_.is_fork()) {
    roster_.abandon();
    return;
  }
  const auto lock = roster_.fabric().lock();
  if (presence_.has_left()) return;
  mailbox_.empty();
  roster_.fabric().remove(roster_.id());
}

// ---- operations

void Core::begin(const std::shared_ptr<Operation>& operation,
                 const std::optional<CallLog::Disagreement>& disagreement) {
  calls_.add(operation);
  roster_.fabric().turns().count_pending(1);
  if (disagreement) {
    record(failure_of(*disagreement, roster_.rank()));
  } else if (operation->is_collective()) {
    activate_next();
  } else {
    operation->carry_on();
  }
}

void Core::activate_next() {
  while (const auto next = calls_.next()) roster_.fabric().ready(next);
}

void Core::over(const Operation& operation) {
  auto removed = calls_.remove(operation);
  if (!removed) return;
  roster_.fabric().hold_until_unlocked(std::move(removed));
  roster_.fabric().turns().count_pending(-1);
  activate_next();
}

// A send to a gone rank is dropped at once. It fails the group only if the operation cannot complete without
// that rank.
void Core::post(const std::shared_ptr<Send>& send) {
  if (!roster_.is_gone(send->peer)) return roster_.to(send->peer).post(send);
  send->over = true;
  send->owner->dropped(*send);
  const auto& pending = calls_.pending();
  const auto self = std::find_if(pending.begin(), pending.end(), [&](const auto& operation) {
    return operation->is_pending() && !operation->is_collective() && operation->needs(send->peer);
  });
  if (self != pending.end()) record_gone(send->peer, **self);
}

void Core::post(const std::shared_ptr<Receive>& receive, const Operation& operation) {
  const bool is_collective = operation.is_collective();
  if (auto message = mailbox_.take_message(*receive, is_collective)) {
    if (message->header.kind == Kind::OFFER && roster_.is_gone(message->source))
      return record_gone(message->source, operation);
    if (auto failure = mailbox_.match(receive, std::move(*message))) record(std::move(*failure));
    return;
  }
  const bool any = receive->peer == ANY_SOURCE;
  if (any ? roster_.everybody_is_gone() : roster_.is_gone(receive->peer))
    return record_gone(any ? (roster_.rank() + 1) % roster_.size() : receive->peer, operation);
  mailbox_.wait_for(receive, is_collective);
}

void Core::announce_if_due(CallBook::Time now) {
  if (const Operation* const operation = calls_.due_announcement(now)) announce(roster_, *operation);
}

void Core::lost_node(const CollectiveOperation& operation, const std::string& sizes) {
  announce(roster_, operation);
  const std::vector<int>& ranks = roster_.node()->ranks();
  for (const int rank : ranks) {
    if (rank != roster_.rank() && roster_.is_gone(rank)) check_gone(rank);
  }
  // All ranks hear of a disagreement about calls by themselves. The sizes in a list do not show in a call.
  if (!presence_.is_member() || sizes.empty() || has_equal_counts(operation.request().verb)) return;
  record(mismatched(roster_.rank(),
                    str(list_of_late(ranks, [](int rank) { return str("rank ", rank); }),
                        " (same machine) disagree about sizes in ", operation.describe(),
                        ". Ranks within that machine are numbered from 0 here: ", sizes),
                    MismatchKind::SIZES));
}

// ---- the fabric

void Core::hear(int rank, const Header& header) {
  if (header.is_message_of_send()) return;
  if (const auto disagreement = calls_.log().hear(rank, header.sequence, header.call()))
    record(failure_of(*disagreement, roster_.rank()));
}

FrameReceiver::Destination Core::place_for(int peer, const Header& header) {
  const int source = roster_.group_rank(peer);
  if (source < 0 || !presence_.is_member()) return {};
  hear(source, header);
  if (!presence_.is_member()) return {};
  Mailbox::Place place = mailbox_.place_for(source, header);
  if (place.failure) record(std::move(*place.failure));
  return std::move(place.destination);
}

void Core::arrived(int peer, const Header& header, std::vector<std::byte> payload) {
  const int source = roster_.group_rank(peer);
  if (source < 0 || !presence_.is_member()) {
    if (header.kind == Kind::MESSAGE) roster_.fabric().lines().to(peer).consumed(header.bytes);
    if (source < 0 || presence_.has_left() || header.kind != Kind::GOODBYE) return;
  }
  switch (header.kind) {
    case Kind::FAILURE: return fail_with(failure_in(header, payload));
    case Kind::GOODBYE: roster_.note_goodbye(source); return check_gone(source);
    case Kind::CALL: return hear(source, header);
    default: break;
  }
  hear(source, header);
  if (!presence_.is_member()) return;
  if (auto failure = mailbox_.deliver(source, header, std::move(payload))) record(std::move(*failure));
}

void Core::lost(int peer) {
  const int rank = roster_.group_rank(peer);
  if (rank >= 0 && presence_.is_member()) check_gone(rank);
}

// ---- failures

void Core::record(GroupFailure failure) {
  if (presence_.is_member()) fail_with(std::move(failure));
}

// Passes on a failure that another rank found, too. This rank may leave or end next because of it, and no
// other rank may take that for the cause.
void Core::fail_with(GroupFailure failure) {
  presence_.fail(std::move(failure));
  const GroupFailure& first = *presence_.failure();
  roster_.fabric().lines().group_failed();
  roster_.send_to_all(header_of(first), first.text);
  presence_.add_note(recorder_.note_failure(first.text, first.code, first.peer, first.reporter));
  fail_all();
  mailbox_.empty();
}

void Core::fail_all() {
  const auto operations = calls_.take_all();
  roster_.fabric().turns().count_pending(-static_cast<std::ptrdiff_t>(operations.size()));
  for (const auto& operation : operations) {
    operation->fail(presence_.failure_of(operation->describe()));
    roster_.fabric().hold_until_unlocked(operation);
  }
}

void Core::record_gone(int rank, const Operation& operation) {
  record(peer_lost(roster_.rank(), roster_.describe_lost(rank, calls_.log().last_call_of(rank)),
                   operation.describe(), direction_of(operation, rank),
                   usual_cause_of_absence(operation.request().acting.purpose)));
}

// The operations are held until the lock is released, because dropping their sends may end them.
void Core::check_gone(int rank) {
  const auto operations = calls_.pending();
  for (const auto& operation : operations) operation->transfers().drop_sends_to(rank);
  for (const auto& operation : operations) {
    if (presence_.is_member() && operation->is_pending() && operation->needs(rank))
      record_gone(rank, *operation);
  }
  for (const auto& operation : operations) roster_.fabric().hold_until_unlocked(operation);
}

void Core::leave() {
  presence_.leave();
  fail_all();
  recorder_.leave();
  Header goodbye;
  goodbye.kind = Kind::GOODBYE;
  roster_.send_to_all(goodbye);
  mailbox_.empty();
  roster_.fabric().remove(roster_.id());
}

}  // namespace lockstep::messages
