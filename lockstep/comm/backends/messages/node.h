// Node: the ranks of a group over messages that are on this machine. They form a group over shared memory.
// The node runs the local parts of collectives in it (comm/algorithms/schedule.h, Local).
//
//   node->post(operation, std::move(request), caller_waits);  // with the fabric's lock; in the same order on
//                                                             // all ranks of the node
//   ...                                              // operation->local_ended(error), without the lock
//   node->withdraw(*operation);  // it has failed: its memory is not touched any more when this returns
//
// One part runs at a time, in the order posted. It is run by
//   a helper    a rank that waits for a collective of the group. It runs small parts, and only for a moment.
//               This saves two changes between threads.
//   the thread  for all other parts, and for parts that a helper has not ended in a moment. Each group that
//               needs a thread has one, which ends with the group.
// Failures    of the group over shared memory withdraw the operations that wait for it. The connections,
//             which end at the same time, tell which rank has died or left. So errors say the same on all
//             nodes.
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

// The interface of a node's client: a collective of the whole group.
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
  // `local` is the group of `rank`'s node, with its ranks in the same order; null if `rank` is alone there.
  // Returns null if every rank is alone on its node.
  static std::shared_ptr<Node> make(algorithms::Nodes nodes, int rank, std::shared_ptr<Backend> local);
  Node(algorithms::Nodes nodes, int rank, std::shared_ptr<Backend> local);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  const algorithms::Nodes& nodes() const { return nodes_; }
  const std::vector<int>& ranks() const { return nodes_.at(mine_); }  // of this node
  bool is_here(int rank) const;
  Backend* local() const { return state_->local.get(); }  // null if this rank is alone

  // Returns true if a helper must be told: a rank that waits, or that will wait at once because
  // `caller_waits`.
  bool post(std::shared_ptr<LocalOwner> owner, Request request, bool caller_waits);
  void withdraw(const LocalOwner& owner);

  // Made by a waiting rank.
  class Helper {
   public:
    explicit Helper(Node& node);
    ~Helper();
    Helper(const Helper&) = delete;
    Helper& operator=(const Helper&) = delete;

    bool has_work() const;  // work() would begin a part
    void work();            // called without the fabric's lock

   private:
    Node& node_;
  };

  // For groups of some of the ranks. Collective over the node's ranks that call (SplitRequest::Callers). At
  // most one of the two fields is set. Neither is set for a rank in no part, nor in a part whose ranks are
  // each on a machine of their own.
  struct Part {
    std::shared_ptr<Backend> whole;  // all ranks of the part are on this node
    std::shared_ptr<Node> node;
  };
  Part split(const SplitRequest& split) const;
  // Options of the node's own groups. Only the group of all ranks has deadlines.
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
    std::condition_variable ended;  // the running part has ended
    // guarded by mutex
    std::deque<Job> jobs;
    const LocalOwner* running = nullptr;
    std::optional<Job> left;  // the running part, if a helper has left it to the thread
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
  void wake_thread();  // called with the mutex held

  const algorithms::Nodes nodes_;
  std::size_t mine_ = 0;
  int rank_;
  std::shared_ptr<State> state_;  // shared with the thread
  std::thread thread_;            // guarded by state_->mutex
};

}  // namespace lockstep::messages
