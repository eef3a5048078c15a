// Node: the ranks of a group over messages that are on this machine, as a group over shared memory, and who
// carries out the local parts of collectives there (comm/algorithms/schedule.h, Local).
//
//   node->post(operation, std::move(request), caller_waits);  // with the fabric's lock; in the same order on
//                                                             // all ranks of the node
//   ...                                              // operation->local_ended(error), without the lock
//   node->withdraw(*operation);  // it has failed: its memory is not touched any more when this returns
//
// One part at a time, in the order posted, by
//   a helper    whoever waits for a collective of the group, which spares two changes between threads: small
//               ones, for a moment;
//   the thread  everything else, also what a helper has not ended in a moment. One for each group that needs
//               it; it ends with the group.
// Failures    of the group over shared memory are answered by withdrawing what waits for it. Who has died or
//             left is found out over the connections, which end at the same time, so errors say the same on
//             all nodes.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/algorithms/schedule.h"
#include "lockstep/comm/backend.h"

namespace lockstep::messages {

// What a node does for: a collective of the whole group.
class LocalOwner {
 public:
  virtual void local_ended(const std::exception_ptr& error) = 0;

 protected:
  LocalOwner() = default;
  LocalOwner(const LocalOwner&) = default;
  LocalOwner& operator=(const LocalOwner&) = default;
  ~LocalOwner() = default;
};

class Node {
 public:
  // `local`: the ranks of `rank`'s node, in the same order; null if it is alone there. Null if every rank is.
  static std::shared_ptr<Node> make(algorithms::Nodes nodes, int rank, std::shared_ptr<Backend> local);
  Node(algorithms::Nodes nodes, int rank, std::shared_ptr<Backend> local);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  const algorithms::Nodes& nodes() const { return nodes_; }
  const std::vector<int>& ranks() const { return nodes_.at(mine_); }  // of this node
  bool is_here(int rank) const;
  Backend* local() const { return state_->local.get(); }  // null if this rank is alone

  // True if somebody is to be told who helps: one who waits, or will at once because `caller_waits`.
  bool post(std::shared_ptr<LocalOwner> owner, Request request, bool caller_waits);
  void withdraw(const LocalOwner& owner);

  // Made by who waits.
  class Helper {
   public:
    explicit Helper(Node& node);
    ~Helper();
    Helper(const Helper&) = delete;
    Helper& operator=(const Helper&) = delete;

    bool has_work() const;  // that work() would begin
    void work();            // without the fabric's lock

   private:
    Node& node_;
  };

  // For groups of some of the ranks. Collective over those of the node's ranks that call
  // (SplitRequest::Callers). One of the two, or neither for a rank in no part or in one whose ranks are each
  // on a machine of their own.
  struct Part {
    std::shared_ptr<Backend> whole;  // all ranks of the part are on this node
    std::shared_ptr<Node> node;
  };
  Part split(const SplitRequest& split) const;
  // Of the node's own groups: it is the group of all that has the deadlines.
  static GroupOptions without_deadlines();

 private:
  struct Job {
    std::shared_ptr<LocalOwner> owner;
    Request request;
    std::shared_ptr<WorkState> begun;
  };
  struct State {
    std::shared_ptr<Backend> local;
    std::mutex mutex;
    std::condition_variable for_thread;
    std::condition_variable ended;  // what was running
    // guarded by mutex
    std::deque<Job> jobs;
    const LocalOwner* running = nullptr;
    std::optional<Job> left;  // of it, by a helper to the thread
    int helpers = 0;
    bool stopping = false;

    bool can_begin() const { return running == nullptr && !jobs.empty(); }
    bool can_help() const { return can_begin() && is_small(jobs.front().request); }
    Job begin();
  };
  static bool is_small(const Request& request);
  static void run(State& state);
  static void end(State& state, const Job& job, const std::exception_ptr& error);
  bool help_with(Job& job);
  void wake_thread();  // with the mutex

  const algorithms::Nodes nodes_;
  std::size_t mine_ = 0;
  int rank_;
  std::shared_ptr<State> state_;  // the thread's too
  std::thread thread_;            // guarded by state_->mutex
};

}  // namespace lockstep::messages
