// Group: what arrives, and the operations it belongs to.
#include <algorithm>
#include <cstring>

#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/group.h"

namespace lockstep::messages {
namespace {

constexpr auto LAST_CODE = static_cast<std::uint64_t>(ErrorCode::BACKEND);

}  // namespace

int Group::group_rank(int peer) const {
  const auto& ranks = membership_.ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), peer);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

bool Group::everybody_is_gone() const {
  for (int r = 0; r < size(); ++r) {
    if (r != rank() && !is_gone(r)) return false;
  }
  return true;
}

void Group::post(const std::shared_ptr<Send>& send) {
  if (!is_gone(send->peer)) return to(send->peer).post(send);
  send->over = true;
  send->owner->dropped(*send);
  const auto self = std::find_if(pending_.begin(), pending_.end(), [&](const auto& operation) {
    return operation->pending() && operation->sequence() == 0 && operation->needs(send->peer);
  });
  if (self != pending_.end()) record_gone(send->peer, **self);
}

void Group::post(const std::shared_ptr<Receive>& receive, const Operation& operation) {
  const bool collective = operation.sequence() != 0;
  if (auto message = inbox_.take_message(*receive, collective)) {
    const bool offer_of_the_gone = message->header.kind == Kind::OFFER && is_gone(message->source);
    return offer_of_the_gone ? record_gone(message->source, operation) : match(receive, std::move(*message));
  }
  const bool any = receive->peer == ANY_SOURCE;
  if (any ? everybody_is_gone() : is_gone(receive->peer))
    return record_gone(any ? (rank() + 1) % size() : receive->peer, operation);
  inbox_.post(receive, collective);
}

void Group::forget(Receive& receive) {
  inbox_.forget(receive);
  if (receive.peer == ANY_SOURCE) {
    receive.owner = nullptr;
  } else {
    to(receive.peer).cancel(receive);
  }
}

void Group::hear(int rank, const Header& header) {
  if (header.is_message_of_send()) return;
  if (const auto disagreement = calls_.hear(rank, header.sequence, header.call()))
    record_disagreement(*disagreement);
}

bool Group::fits(const Receive& receive, int source, const Header& header) {
  const Call theirs = header.call();
  const auto* operation = static_cast<const Operation*>(receive.owner);
  if (header.is_message_of_send()) {
    const Call mine = call_of(operation->request());
    if (mine.count == theirs.count && mine.dtype == theirs.dtype && header.bytes == receive.data.size())
      return true;
    record(mismatched(
        rank(), describe_message_disagreement(header.sequence, source, rank(), header.label, theirs, mine)));
    return false;
  }
  if (header.bytes == receive.data.size() && header.whole == receive.whole) return true;
  record(mismatched(rank(),
                    describe_disagreement(header.sequence, call_of(operation->request()), theirs,
                                          {rank(), receive.whole, source, header.whole}),
                    MismatchKind::SIZES));
  return false;
}

FrameReceiver::Destination Group::place_for(int peer, const Header& header) {
  const int source = group_rank(peer);
  if (source < 0 || !usable()) return {};
  hear(source, header);
  if (failure_) return {};
  std::shared_ptr<Receive> receive = inbox_.take_receive(source, header);
  if (!receive) return {nullptr, true};
  if (!fits(*receive, source, header)) return {};
  receive->peer = source;
  return {std::move(receive), false};
}

void Group::arrived(int peer, const Header& header, std::vector<std::byte> payload) {
  const int source = group_rank(peer);
  const bool keeps = header.kind == Kind::MESSAGE;  // memory of the window
  if (source < 0 || !usable()) {
    if (keeps) fabric().to(peer).consumed(header.bytes);
    if (source < 0 || closed_ || header.kind != Kind::GOODBYE) return;
  }
  switch (header.kind) {
    case Kind::FAILURE:
      return fail_with({static_cast<ErrorCode>(std::min<std::uint64_t>(header.count, LAST_CODE)),
                        std::string(reinterpret_cast<const char*>(payload.data()), payload.size()),
                        header.root, static_cast<int>(header.label),
                        static_cast<MismatchKind>(header.op & 1U)});
    case Kind::GOODBYE: left_.at(static_cast<std::size_t>(source)) = true; return check_gone(source);
    case Kind::CALL: return hear(source, header);
    default: break;
  }
  hear(source, header);
  if (failure_) return;
  std::shared_ptr<Receive> receive = inbox_.take_receive(source, header);
  Inbox::Arrived message{source, header, std::move(payload)};
  if (receive) {
    match(receive, std::move(message));
  } else {
    inbox_.keep(std::move(message));
  }
}

void Group::match(const std::shared_ptr<Receive>& receive, Inbox::Arrived message) {
  if (message.header.kind == Kind::MESSAGE && !is_dead(message.source))
    to(message.source).consumed(message.header.bytes);
  if (!fits(*receive, message.source, message.header)) return;
  receive->peer = message.source;
  if (message.header.kind == Kind::OFFER)
    return to(message.source).accept(message.header, message.payload, receive);
  if (!message.payload.empty())
    std::memcpy(receive->data.data(), message.payload.data(), message.payload.size());
  receive->arrived = message.payload.size();
  receive->over = true;
  receive->owner->received(*receive);
}

void Group::lost(int peer) {
  const int rank = group_rank(peer);
  if (rank >= 0 && usable()) check_gone(rank);
}

void Group::lost_node(const CollectiveOperation& operation, const std::string& sizes) {
  announce(operation);
  for (const int rank : node()->ranks()) {
    if (rank != this->rank() && is_gone(rank)) check_gone(rank);
  }
  // Other disagreements are about calls, of which all ranks hear. Sizes in lists are not shown by a call.
  const Verb verb = operation.request().verb;
  if (usable() && !sizes.empty() && !has_equal_counts(verb)) {
    std::string who;
    for (const int rank : node()->ranks()) who += str(who.empty() ? "" : ", ", "rank ", rank);
    record(mismatched(rank(),
                      str(who, " (same machine) disagree about sizes in ", operation.describe(),
                          ". Ranks within that machine are numbered from 0 here: ", sizes),
                      MismatchKind::SIZES));
  }
}

void Group::check_gone(int rank) {
  const auto operations = pending_;
  for (const auto& operation : operations) operation->drop_sends_to(rank);
  for (const auto& operation : operations) {
    if (usable() && operation->pending() && operation->needs(rank)) record_gone(rank, *operation);
  }
  for (const auto& operation : operations) fabric().hold_until_unlocked(operation);
}

}  // namespace lockstep::messages
