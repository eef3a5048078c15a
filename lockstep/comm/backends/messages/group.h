// Group: one process group over messages, from this rank's side: what it has called, what waits to be received, who has
// left, and the first failure, which is thrown from then on.
//
// A failure is recorded by the rank that sees it first and sent to all others, who pass it on; a rank keeps the first that it
// sees or is sent.
// A rank whose connection ends without a goodbye is dead, one that said goodbye has left: both fail the operations that need
// something from it, which fails the group. What a rank had sent before is still received.
//
// Threads: functions of Backend by any; all others with the fabric's lock unless said otherwise.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/messages/call_log.h"
#include "lockstep/comm/backends/messages/carrier.h"
#include "lockstep/comm/backends/messages/fabric.h"
#include "lockstep/comm/backends/messages/inbox.h"
#include "lockstep/comm/backends/messages/node.h"
#include "lockstep/comm/backends/messages/operation.h"
#include "lockstep/comm/group/group_failure.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep::messages {

class Group final : public Backend, public std::enable_shared_from_this<Group> {
 public:
  struct Membership {
    std::shared_ptr<Running> running;
    std::uint64_t id = 0;    // the same on all ranks
    std::vector<int> ranks;  // of the fabric, in the order of the group's
    int rank = 0;
    std::string name;
    const Carrier* carrier = nullptr;  // that carries the messages: a constant
    GroupOptions options;
    std::shared_ptr<TraceMemory> trace;  // of this rank
    std::shared_ptr<Node> node;          // null: no two ranks are on one machine
  };

  static std::shared_ptr<Group> make(Membership membership);
  // The group of all ranks that are connected; `membership` has everything but what follows from the connections.
  static ProcessGroup make_world(Connections connections, Membership membership);
  ~Group() override;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  std::string_view name() const override {
    return node() ? membership_.carrier->hierarchical : membership_.carrier->name;
  }
  int rank() const override { return membership_.rank; }
  int size() const override { return static_cast<int>(membership_.ranks.size()); }
  const std::string& group_name() const override { return membership_.name; }
  std::shared_ptr<WorkState> start(Request request) override;
  std::shared_ptr<void> allocate_shared(std::size_t bytes) override;
  std::shared_ptr<Backend> split(const std::vector<std::vector<int>>& parts, const std::string& name,
                                 const GroupOptions& options) override;
  void abort(const std::string& reason, ErrorCode code, int peer) override;
  void close() override;
  void check_peers() override;
  std::shared_ptr<TraceMemory> trace() const override { return membership_.trace; }

  // ---- for operations
  std::uint64_t id() const { return membership_.id; }
  const std::shared_ptr<Node>& node() const { return membership_.node; }
  Fabric& fabric() const { return membership_.running->fabric(); }
  Connection& to(int rank) const { return fabric().to(fabric_rank(rank)); }
  void post(const std::shared_ptr<Send>& send);
  void post(const std::shared_ptr<Receive>& receive, const Operation& operation);
  void forget(Receive& receive);
  void over(Operation& operation);  // done or failed
  FlightRecorder& recorder() { return recorder_; }
  // `operation` has failed by an error of this rank alone: the others must not wait for its part.
  void give_up(const Operation& operation, const std::exception_ptr& error);
  std::uint64_t progress() const { return progress_; }
  void count_progress() { ++progress_; }
  // Something went wrong in this rank's node: tells the others what it called, and looks who is gone. `sizes`: what its ranks
  // disagree about, if they called the same with other sizes.
  void lost_node(const CollectiveOperation& operation, const std::string& sizes);
  // Throws Aborted in a fork of the process that made the group; needs no lock.
  void refuse_fork(const std::string& what) const;
  // Returns when the operation is done or failed, or records the failure that ends it.
  void wait(Session& session, Operation& operation, std::optional<std::chrono::nanoseconds> timeout);
  static void help(Session& session, Node::Helper& helper);
  void announce_after_a_while();
  bool is_dead(int rank) const { return fabric().end_of(fabric_rank(rank)) != StreamEnd::NONE; }
  bool has_left(int rank) const { return left_.at(static_cast<std::size_t>(rank)); }
  bool everybody_is_gone() const;

  // ---- for the fabric; `peer` is a rank of it
  FrameReceiver::Destination place_for(int peer, const Header& header);
  void arrived(int peer, const Header& header, std::vector<std::byte> payload);
  void lost(int peer);

 private:
  explicit Group(Membership membership);
  bool forked() const;
  bool usable() const { return !failure_ && !closed_; }
  [[noreturn]] void throw_unusable(const std::string& what) const;
  std::exception_ptr failure_of(const std::string& what) const;
  void record(GroupFailure failure);
  void fail_with(GroupFailure failure);
  void fail_all();
  void record_disagreement(const CallLog::Disagreement& disagreement);
  void record_gone(int rank, const Operation& operation);
  std::shared_ptr<Operation> make_operation(Request request);
  void finish_collectives();
  void activate_next();
  void send_to_all(Header header, const std::string& text = {}) const;
  void announce(const CollectiveOperation& operation);
  void empty_inbox();

  int fabric_rank(int rank) const { return membership_.ranks.at(static_cast<std::size_t>(rank)); }
  int group_rank(int peer) const;  // -1 if it is not a member
  bool is_gone(int rank) const { return is_dead(rank) || has_left(rank); }
  void check_gone(int rank);
  void hear(int rank, const Header& header);
  bool fits(const Receive& receive, int source, const Header& header);
  void match(const std::shared_ptr<Receive>& receive, Inbox::Arrived message);

  std::string describe(int rank) const;  // "rank 3 (pid 4121 at 10.0.0.2:4711)"
  GroupPlace place() const;
  LostPeer describe_lost(int rank) const;
  std::vector<int> late_ranks(const Operation& operation) const;
  std::string who_is_late(const Operation& operation) const;

  Membership membership_;
  const unsigned made_in_;  // generation of forks
  // guarded by the fabric's lock
  FlightRecorder recorder_;
  CallLog calls_;
  Inbox inbox_;
  std::vector<std::shared_ptr<Operation>> pending_;  // oldest first
  std::deque<std::shared_ptr<Operation>> queued_;    // of them, collectives that have not begun
  int active_ = 0;                                   // of them, collectives that have,
  int local_ = 0;                                    // and of these, those with parts within nodes
  std::vector<std::uint64_t> sent_;                  // messages, by rank
  std::vector<bool> left_;
  std::uint64_t progress_ = 0;
  std::uint64_t announced_ = 0;    // collective
  std::uint64_t waiting_for_ = 0;  // the oldest pending collective,
  Deadline::Clock::time_point waiting_since_;
  std::optional<GroupFailure> failure_;
  std::string trace_note_;  // for its message: where the trace is
  bool closed_ = false;
};

}  // namespace lockstep::messages
