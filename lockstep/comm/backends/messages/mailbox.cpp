#include "lockstep/comm/backends/messages/mailbox.h"

#include <cstring>
#include <utility>

namespace lockstep::messages {

void Mailbox::forget(Receive& receive) {
  inbox_.forget(receive);
  if (receive.peer == ANY_SOURCE) {
    receive.owner = nullptr;
  } else {
    roster_.to(receive.peer).cancel(receive);
  }
}

std::optional<GroupFailure> Mailbox::compare(const Receive& receive, int source, const Header& header) const {
  const Call theirs = header.call();
  if (header.is_message_of_send()) {
    const Call mine = call_of(*receive.request);
    if (mine.count == theirs.count && mine.dtype == theirs.dtype && header.bytes == receive.data.size())
      return std::nullopt;
    return mismatched(roster_.rank(), describe_message_disagreement(header.sequence, source, roster_.rank(),
                                                                    header.label, theirs, mine));
  }
  if (header.bytes == receive.data.size() && header.whole == receive.whole) return std::nullopt;
  return mismatched(roster_.rank(),
                    describe_disagreement(header.sequence, call_of(*receive.request), theirs,
                                          {roster_.rank(), receive.whole, source, header.whole}),
                    MismatchKind::SIZES);
}

Mailbox::Place Mailbox::place_for(int source, const Header& header) {
  std::shared_ptr<Receive> receive = inbox_.take_receive(source, header);
  if (!receive) return {{nullptr, /*keep=*/true}, std::nullopt};
  if (auto failure = compare(*receive, source, header)) return {{}, std::move(failure)};
  receive->peer = source;
  return {{std::move(receive), /*keep=*/false}, std::nullopt};
}

std::optional<GroupFailure> Mailbox::deliver(int source, const Header& header,
                                             std::vector<std::byte> payload) {
  const std::shared_ptr<Receive> receive = inbox_.take_receive(source, header);
  Inbox::Arrived message{source, header, std::move(payload)};
  if (receive) return match(receive, std::move(message));
  inbox_.keep(std::move(message));
  return std::nullopt;
}

std::optional<GroupFailure> Mailbox::match(const std::shared_ptr<Receive>& receive, Inbox::Arrived message) {
  give_credit(message.source, message.header);
  if (auto failure = compare(*receive, message.source, message.header)) return failure;
  receive->peer = message.source;
  if (message.header.kind == Kind::OFFER) {
    roster_.to(message.source).accept(message.header, message.payload, receive);
    return std::nullopt;
  }
  if (!message.payload.empty())
    std::memcpy(receive->data.data(), message.payload.data(), message.payload.size());
  receive->arrived = message.payload.size();
  receive->over = true;
  receive->owner->received(*receive);
  return std::nullopt;
}

// The memory of a kept MESSAGE is released, so its sender gets credit.
void Mailbox::give_credit(int source, const Header& header) const {
  if (header.kind == Kind::MESSAGE && !roster_.is_dead(source)) roster_.to(source).consumed(header.bytes);
}

void Mailbox::empty() {
  for (const auto& message : inbox_.take_all()) give_credit(message.source, message.header);
}

}  // namespace lockstep::messages
