// Mailbox: the messages of one group. It matches each message that arrives with the receive that waits for it
// (inbox.h), whichever comes first, and compares the two. A message for which no receive waits yet is kept.
//
//   if (auto message = mailbox.take_message(*receive, true))
//     failure = mailbox.match(receive, std::move(*message));
//   else
//     mailbox.wait_for(receive, true);
//   ...
//   if (auto failure = mailbox.deliver(source, header, std::move(payload))) fail_with(*failure);
//
// A failure is a message that does not fit its receive; it ends the group. Threads: the fabric's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/backends/messages/inbox.h"
#include "lockstep/comm/backends/messages/roster.h"
#include "lockstep/comm/group/group_failure.h"

namespace lockstep::messages {

class Mailbox {
 public:
  explicit Mailbox(const Roster& roster) : roster_(roster), sent_(static_cast<std::size_t>(roster.size())) {}

  // Number of this rank's next message of send() to `rank`.
  std::uint64_t next_number(int rank) { return sent_.at(static_cast<std::size_t>(rank))++; }

  // ---- when a receive is posted
  std::optional<Inbox::Arrived> take_message(const Receive& receive, bool collective) {
    return inbox_.take_message(receive, collective);
  }
  void wait_for(const std::shared_ptr<Receive>& receive, bool collective) {
    inbox_.post(receive, collective);
  }
  // The receive's memory is not touched after this returns.
  void forget(Receive& receive);
  std::optional<GroupFailure> match(const std::shared_ptr<Receive>& receive, Inbox::Arrived message);

  // ---- when a message arrives
  // The destination of a MESSAGE's payload (FrameReceiver::place_for).
  struct Place {
    FrameReceiver::Destination destination;
    std::optional<GroupFailure> failure;
  };
  Place place_for(int source, const Header& header);
  // Takes an OFFER, or a MESSAGE that was kept.
  std::optional<GroupFailure> deliver(int source, const Header& header, std::vector<std::byte> payload);
  // Drops all messages here, because no receive will ask for them any more.
  void empty();

 private:
  std::optional<GroupFailure> compare(const Receive& receive, int source, const Header& header) const;
  void give_credit(int source, const Header& header) const;

  const Roster& roster_;
  Inbox inbox_;
  std::vector<std::uint64_t> sent_;  // number of messages sent, by rank
};

}  // namespace lockstep::messages
