// Operation: one call of a group over messages. It is a state machine that the fabric carries on when
// messages have come or gone.
//
//   QUEUED --carry_on()--> STEPPING --step() has posted transfers--> WAITING
//     |                      |   ^--------all are over, carry_on()-----|
//     |                      |--finish()--> DONE                       |
//     |                      |                                         |
//     +----------------------+--a step throws, the group fails or is left: fail()--> FAILED
//
// All transfers of a failed operation are cancelled before its waiters hear of it, so the caller may free its
// buffers.
//
// Kinds: CollectiveOperation (collective.h), SendOperation and ReceiveOperation (message_operations.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/messages/transfers.h"
#include "lockstep/comm/trace/flight_recorder.h"
#include "lockstep/comm/work.h"

namespace lockstep::messages {

class Core;

class Operation : public WorkState, public std::enable_shared_from_this<Operation> {
 public:
  // `sequence` is the number of a collective, from 1; 0 for a message.
  Operation(std::shared_ptr<Core> core, Request request, std::uint64_t sequence = 0);

  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  bool poll() override;
  std::exception_ptr exception() const override;

  // ---- with the fabric's lock held
  virtual std::string describe() const = 0;  // "all_reduce #118"
  virtual bool has_local_parts() const { return false; }
  // Returns whether the operation cannot complete unless `rank` still sends or takes something.
  virtual bool needs(int rank) const = 0;
  virtual std::vector<int> waiting_in_node() const { return {}; }  // ranks of this node that it waits for

  const Request& request() const { return request_; }
  std::uint64_t sequence() const { return sequence_; }
  bool is_collective() const { return !is_message(request_.verb); }
  bool is_pending() const { return state_ != State::DONE && state_ != State::FAILED; }
  std::uint64_t progress() const;  // changes whenever a transfer moves or ends
  Transfers& transfers() { return transfers_; }
  const Transfers& transfers() const { return transfers_; }

  void carry_on();  // takes steps until there is something to wait for
  void step_is_over();
  void fail(std::exception_ptr exception);

 protected:
  virtual void step() = 0;    // posts the next transfers, or calls finish(); nothing is under way before
  virtual void withdraw() {}  // ends work that is not a transfer
  void finish();
  void give_up(const std::exception_ptr& error);

  Core& core() const { return *core_; }
  const FlightRecorder::Ticket& ticket() const { return ticket_; }

 private:
  enum class State { QUEUED, STEPPING, WAITING, DONE, FAILED };
  void end(State state);

  const std::shared_ptr<Core> core_;  // null in tests that carry nothing on
  Request request_;
  const std::uint64_t sequence_;
  Transfers transfers_;
  const FlightRecorder::Ticket ticket_;
  State state_ = State::QUEUED;
  std::exception_ptr exception_;
};

// Says what the operation waits for from this rank, for messages: ", waiting to send to it"; may be empty.
std::string direction_of(const Operation& operation, int rank);

}  // namespace lockstep::messages
