// Operations of the tcp backend: state machines that the fabric carries on when messages have come or gone.
//
//   PENDING --step() has posted transfers--> waits until all of them are over --> step() --...--> finish() --> DONE
//      |                                                                                             |
//      +------------------- the group fails or is left, or a step throws ----------------------> FAILED
//
// A collective follows its schedule (comm/algorithms/schedule.h). All transfers of a failed operation are cancelled before its
// waiters hear of it, so the caller may free its buffers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/algorithms/schedule.h"
#include "lockstep/comm/backends/messages/node.h"
#include "lockstep/comm/backends/messages/transfer.h"
#include "lockstep/comm/backends/messages/wide_copy.h"
#include "lockstep/comm/trace/flight_recorder.h"
#include "lockstep/comm/work.h"

namespace lockstep::messages {

class Group;

class Operation : public WorkState, public TransferOwner, public std::enable_shared_from_this<Operation> {
 public:
  Operation(std::shared_ptr<Group> group, Request request);

  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  bool poll() override;
  std::exception_ptr exception() const override;

  // ---- with the fabric's lock
  virtual std::string describe() const = 0;             // "all_reduce #118"
  virtual std::uint64_t sequence() const { return 0; }  // 0: not a collective
  virtual bool has_local_parts() const { return false; }
  // Whether it cannot complete without something that has yet to come from, or to be taken by, this rank.
  virtual bool needs(int rank) const = 0;
  const Request& request() const { return request_; }
  // Why others usually do not come (purpose.h), as the end of a sentence.
  std::string usual_cause() const { return usual_cause_of_absence(request_.acting.purpose); }
  bool pending() const { return state_ == State::PENDING; }
  std::uint64_t progress() const;  // changes whenever something happened
  std::vector<int> receiving_from() const;
  std::vector<int> sending_to() const;
  virtual std::vector<int> waiting_in_node() const { return {}; }  // ranks for something in shared memory
  void carry_on();  // takes steps until something has to be waited for
  void fail(std::exception_ptr exception);
  void record();  // that it has begun
  void drop_sends_to(int rank);

 protected:
  virtual void step() = 0;    // nothing is under way: post the next transfers, or finish()
  virtual void withdraw() {}  // what is under way elsewhere than in transfers
  void add_under_way() { ++under_way_; }
  void one_less();
  void post_send(int peer, Header header, std::span<const std::byte> data, bool ahead = false);
  void post_receive(Receive receive);
  void advance_transfers();  // what was ahead is of this step now
  void finish();

  void moved() override;
  void sent(Send& send) override;
  void dropped(Send& send) override { sent(send); }
  void received(Receive& receive) override;

  const std::shared_ptr<Group> group_;
  Request request_;
  FlightRecorder::Ticket ticket_;
  std::vector<std::shared_ptr<Send>> sends_;  // of this step, and of the next that are ahead
  std::vector<std::shared_ptr<Receive>> receives_;

 private:
  enum class State { PENDING, DONE, FAILED };
  void let_go();
  void over(bool ahead);

  State state_ = State::PENDING;
  bool begun_ = false;
  bool stepping_ = false;
  std::size_t under_way_ = 0;  // of this step
  std::size_t ahead_ = 0;      // of the next one
  std::uint64_t progress_ = 0;
  std::exception_ptr exception_;
};

// What a collective goes through: messages between all ranks, or nodes first, as what was called or in float32 (messages/wide_copy.h).
enum class Route { FLAT, NODES, NODES_IN_FLOAT32 };

class CollectiveOperation final : public Operation, public LocalOwner {
 public:
  CollectiveOperation(std::shared_ptr<Group> group, Request request, std::uint64_t sequence);

  std::string describe() const override;
  std::uint64_t sequence() const override { return sequence_; }
  bool needs(int rank) const override;
  bool has_local_parts() const override { return has_local_parts_; }
  const Call& call() const { return call_; }
  Header header() const;
  void local_ended(const std::exception_ptr& error) override;
  std::vector<int> waiting_in_node() const override;

 private:
  void step() override;
  void begin(const algorithms::Step& step);
  void post_transfers(const algorithms::Step& step, bool ahead);
  void combine(const std::vector<algorithms::Combine>& combines);
  Request request_of(const algorithms::Local& local) const;
  void post_local(const algorithms::Local& local);
  void withdraw() override;
  void widen();
  // What the schedule is of: what was called, or the same in float32.
  const Request& carried_out() const { return wide_ ? wide_->request() : request_; }
  std::byte* at(const algorithms::Place& place) const;
  bool overwrites_inputs() const;

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  const std::uint64_t sequence_;
  const Call call_;
  const Route route_;
  algorithms::Schedule schedule_;
  std::unique_ptr<std::byte, Free> scratch_;
  std::shared_ptr<WideCopy> wide_;
  std::vector<std::byte> aside_;  // the output, until all is done
  const bool has_local_parts_;
  int local_parts_ = 0;     // under way
  bool lost_node_ = false;  // a rank of this node is gone, has failed or called something else
  std::size_t at_ = 0;
  bool in_step_ = false;
};

class SendOperation final : public Operation {
 public:
  SendOperation(std::shared_ptr<Group> group, Request request, std::uint64_t number);
  std::string describe() const override;
  bool needs(int rank) const override { return rank == request_.root; }

 private:
  void step() override;
  void dropped(Send&) override {}  // then somebody is needed who is gone

  const std::uint64_t number_;  // of the message, among those to this rank
  bool posted_ = false;
};

class ReceiveOperation final : public Operation {
 public:
  using Operation::Operation;
  std::string describe() const override;
  bool needs(int rank) const override;
  int source_rank() const override;

 private:
  void step() override;

  bool posted_ = false;
  int source_ = -1;
};

}  // namespace lockstep::messages
