// Core: a group over messages while operations are under way: its ranks (roster.h), this rank's presence,
// the operations that it called (call_book.h), the messages between them (mailbox.h), and the records of its
// calls. Operations and the fabric use it; a Group is the Backend around it.
//
// A failure is recorded by the rank that sees it first and sent to all others, who pass it on; a rank keeps
// the first that it sees or is sent. A rank whose connection ends without a goodbye is dead, one that said
// goodbye has left: both fail the operations that need something from it, which fails the group. Messages
// that a rank had sent before are still received.
//
// Threads: the fabric's lock.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/backends/messages/call_book.h"
#include "lockstep/comm/backends/messages/fabric.h"
#include "lockstep/comm/backends/messages/mailbox.h"
#include "lockstep/comm/backends/messages/operation.h"
#include "lockstep/comm/backends/messages/presence.h"
#include "lockstep/comm/backends/messages/roster.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep::messages {

class CollectiveOperation;

class Core {
 public:
  explicit Core(Membership membership);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  const Roster& roster() const { return roster_; }
  const Presence& presence() const { return presence_; }
  CallBook& calls() { return calls_; }
  Mailbox& mailbox() { return mailbox_; }
  FlightRecorder& recorder() { return recorder_; }

  // ---- for the group
  // A new operation, and the disagreement that its call has shown.
  void begin(const std::shared_ptr<Operation>& operation,
             const std::optional<CallLog::Disagreement>& disagreement);
  // The group has failed, unless it has already or this rank has left it.
  void record(GroupFailure failure);
  void leave();

  // ---- for operations
  void post(const std::shared_ptr<Send>& send);
  void post(const std::shared_ptr<Receive>& receive, const Operation& operation);
  void over(const Operation& operation);  // done or failed
  // Tells the others which collective this rank waits for, after a while.
  void announce_if_due(CallBook::Time now);
  // Something went wrong in this rank's node: tells the others what it called, and looks who is gone.
  // `sizes`: what its ranks disagree about, if they called the same with other sizes.
  void lost_node(const CollectiveOperation& operation, const std::string& sizes);

  // ---- for the fabric; `peer` is a rank of it
  FrameReceiver::Destination place_for(int peer, const Header& header);
  void arrived(int peer, const Header& header, std::vector<std::byte> payload);
  void lost(int peer);

 private:
  void fail_with(GroupFailure failure);
  void fail_all();
  void record_gone(int rank, const Operation& operation);
  void check_gone(int rank);
  void hear(int rank, const Header& header);
  void activate_next();

  Roster roster_;
  Presence presence_;
  FlightRecorder recorder_;
  CallBook calls_;
  Mailbox mailbox_;
};

}  // namespace lockstep::messages
