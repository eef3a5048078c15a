// Core: a group over messages while operations are under way. It holds the group's ranks (roster.h), this
// rank's presence (presence.h), its operations (call_book.h), its messages (mailbox.h), and the records of
// its calls. Operations and the fabric use the core; a Group is the Backend around it.
//
// The rank that sees a failure first records it and sends it to all other ranks, which pass it on. Each rank
// keeps the first failure that it sees or is sent. A rank whose connection ends without a goodbye is dead. A
// rank that said goodbye has left. Both fail the operations that need data from that rank, and this fails the
// group. Messages that the rank had sent before are still received.
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

  // ---- called by the group
  // Begins an operation. `disagreement` is the one that its call has revealed, if any.
  void begin(const std::shared_ptr<Operation>& operation,
             const std::optional<CallLog::Disagreement>& disagreement);
  // Records the failure, unless the group has failed already or this rank has left it.
  void record(GroupFailure failure);
  void leave();

  // ---- called by operations
  void post(const std::shared_ptr<Send>& send);
  void post(const std::shared_ptr<Receive>& receive, const Operation& operation);
  void over(const Operation& operation);  // the operation is done or failed
  // Tells the other ranks which collective this rank waits for, once it has waited for a while.
  void announce_if_due(CallBook::Time now);
  // The part of `operation` within this rank's node has failed. Tells the other ranks what this rank called,
  // and checks which ranks are gone. `sizes` says how sizes differ, if the ranks of the node made the same
  // call with different sizes.
  void lost_node(const CollectiveOperation& operation, const std::string& sizes);

  // ---- called by the fabric; `peer` is a rank of the fabric
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
