// The launchers of one job on several machines: who starts which ranks, and telling each other when a rank
// fails. They talk over a TCP store at MASTER_ADDR:MASTER_PORT that a process of node 0's launcher serves;
// the ranks meet over the same store.
//
//   Nodes nodes(access, job_id);                    // node 0 forks the process that serves the store
//   Nodes::Joined joined = nodes.meet(ranks_here, deadline);  // blocks until all launchers are here
//   ... in the process that supervises: ...
//   NodeLink link(access, std::move(joined.stores));                         // forks the watcher
//   wait.want_read(link.descriptor()); ... if (auto news = link.news(wait)) stop(*news);
//   link.report({node, 137, "rank 3 failed first: killed by SIGKILL"});       // the first report of the job
//                                                                             // counts
//   if (link.agree_on_restart(true)) ...          // all nodes start their ranks again, or none does
//   link.finish();                                // this node is done
//
// What is said of one start of the ranks stands under keys with the number of that start, so what dead ranks
// and their launchers have said means nothing to the next one. Where restarts were asked for, a node whose
// ranks have ended well waits for the others: a failure of theirs restarts its ranks, too.
//
// The process that serves the store ends when all nodes are done or gone; node 0's launcher waits for it, and
// says how it ended if that comes too early. That process looks into its own table, and node 0's launcher has
// sockets to it from before it was forked: strangers who flood the address keep neither from anything. All
// connections are there before a rank starts.
//
// Nothing here has a thread: processes that fork are to have one only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/launch/launch_spec.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/fd.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/os/secret.h"
#include "lockstep/store/tcp_store.h"

namespace lockstep {

struct NodeAccess {
  std::string host;
  int port = 0;
  Secret secret;
  int node = 0;
  int nodes = 1;
};

// A launcher's connections to the store.
struct NodeStores {
  // By which this launcher exists: when its last copy is closed, before finish(), the node is gone.
  std::unique_ptr<TcpStore> own;
  std::unique_ptr<TcpStore> watcher;
};

class Nodes {
 public:
  // Node 0: starts the process that serves the store. Fails: SystemError when the address cannot be had.
  // `job_id` is of this launcher's making; that of node 0 counts.
  Nodes(NodeAccess access, std::string job_id);

  struct Joined {
    int first_rank = 0;
    int world_size = 0;
    std::string job_id;  // node 0's
    NodeStores stores;
  };
  // Of each launcher.
  struct Wish {
    int ranks = 1;         // here
    int max_restarts = 0;  // the same for all
  };
  // Once. Fails: Timeout naming the nodes that did not come; StoreError (another secret; on node 0: the
  // process that serves the store has ended, and how); InvalidArgument: a node number that is taken, or
  // launchers that were told different numbers of nodes or restarts.
  Joined meet(const Wish& wish, Deadline deadline);

  pid_t server() const { return server_; }  // 0: another node's

 private:
  void start_server();
  [[noreturn]] void throw_server_ended() const;
  NodeStores connect(Deadline deadline);
  void meet_with(TcpStore& store, const Wish& wish, Deadline deadline, Joined& joined) const;

  const NodeAccess access_;
  const std::string job_id_;
  pid_t server_ = 0;
  NodeStores to_server_;  // node 0, until it meets the others
};

// The first failure of the job, as its node tells it.
struct NodeFailure {
  int node = 0;
  int exit_code = 1;
  std::string what;  // empty: a rank has failed, and what the first cause was is yet to be found
  int signal = 0;    // by which its launcher was asked to stop: the other nodes stop in the same way
};

class NodeLink {
 public:
  NodeLink(NodeAccess access, NodeStores stores);
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;
  ~NodeLink();

  int descriptor() const { return news_.get(); }  // -1: there is no more to come
  // Once a start: another node has failed, its launcher is gone, or the store is (of which node 0 is said to
  // be the place).
  std::optional<NodeFailure> news(const PollSet& wait);
  // Tells the job that this node has failed; what counts as the job's first failure, which may be another
  // node's.
  NodeFailure report(const NodeFailure& mine);
  const Secret& secret() const { return access_.secret; }

  // ---- what was the first cause (job_cause.h), once this node's ranks have ended
  void publish(const std::string& ends);  // what became of them
  // What each node has published, by node; nothing of one whose launcher is gone, or silent until the
  // deadline.
  std::vector<std::optional<std::string>> published(Deadline deadline);
  NodeFailure agree(const NodeFailure& mine);  // what counts as the job's first cause: what was said first
  std::optional<NodeFailure> agreed(Deadline deadline);  // waits until somebody has said it

  // ---- restarts
  void note_ended_well();  // the ranks of this node have; once a start
  bool have_others_ended_well() const { return others_ended_well_; }  // known after news()
  // All ranks of this node have ended. True: every node starts its ranks again, and what follows here is of
  // that start. The first launcher that says false decides for all, unless another said true before: then
  // that one's next start ends when this launcher is gone.
  bool agree_on_restart(bool wished);

  void finish();  // this node has ended well, and nothing follows

 private:
  std::optional<NodeFailure> take_news();

  const NodeAccess access_;
  pid_t watcher_ = 0;
  Fd news_;
  std::string unread_;  // of the watcher's lines
  std::unique_ptr<TcpStore> store_;
  int start_ = 0;  // of the ranks, from 0
  bool others_ended_well_ = false;
};

}  // namespace lockstep
