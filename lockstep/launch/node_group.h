// The launchers of one job on several machines: Nodes finds out which launcher starts which ranks, and
// NodeLink tells the other launchers when a rank fails. They talk over a TCP store at
// MASTER_ADDR:MASTER_PORT, which a process of node 0's launcher serves. The ranks meet over the same store.
//
//   Nodes nodes(access, job_id);                    // node 0 forks the process that serves the store
//   Nodes::Joined joined = nodes.meet(ranks_here, deadline);  // blocks until all launchers are here
//   ... in the process that supervises: ...
//   NodeLink link(access, std::move(joined.stores));                         // forks the watcher
//   wait.want_read(link.descriptor()); ... if (auto news = link.news(wait)) stop(*news);
//   link.report({node, 137, "rank 3 failed first: killed by SIGKILL"});       // the first report of the job
//                                                                             // counts
//   if (link.agree_on_restart(true) == NextStart::FOLLOWS) ...  // all nodes start their ranks again, or none
//   link.finish();                                // this node is done
//
// The keys of one start of the ranks contain the number of that start, so a later start never reads them. If
// the job may be restarted, a node whose ranks have ended well waits for the other nodes: if ranks fail
// there, it restarts its own ranks too.
//
// The process that serves the store ends when all nodes are done or gone. Node 0's launcher waits for it and
// reports an early end. That process reads its own table directly, and node 0's launcher has had sockets to
// it since before the fork. So strangers who flood the address can block neither of them. All connections
// exist before a rank starts.
//
// No code here starts a thread, because a process that forks must have only one.
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
  // The launcher's presence in the job. When its last copy is closed before finish(), the node counts as
  // gone.
  std::unique_ptr<TcpStore> own;
  std::unique_ptr<TcpStore> watcher;
};

class Nodes {
 public:
  // On node 0, starts the process that serves the store. Throws SystemError if the address is not available.
  // `job_id` is this launcher's proposal; the job uses node 0's.
  Nodes(NodeAccess access, std::string job_id);

  struct Joined {
    int first_rank = 0;
    int world_size = 0;
    std::string job_id;  // node 0's
    NodeStores stores;
  };
  // The request of each launcher.
  struct Wish {
    int ranks = 1;         // on this node
    int max_restarts = 0;  // must be equal on all nodes
  };
  // Call it once. Throws Timeout that names the nodes that did not come; StoreError if the secret differs or,
  // on node 0, if the process that serves the store has ended; InvalidArgument if the node number is taken,
  // or if launchers disagree about the number of nodes or restarts.
  Joined meet(const Wish& wish, Deadline deadline);

  pid_t server() const { return server_; }  // 0 if another node serves the store

 private:
  void start_server();
  [[noreturn]] void throw_server_ended() const;
  NodeStores connect(Deadline deadline);
  void meet_with(TcpStore& store, const Wish& wish, Deadline deadline, Joined& joined) const;

  const NodeAccess access_;
  const std::string job_id_;
  pid_t server_ = 0;
  NodeStores to_server_;  // on node 0, until it meets the other nodes
};

// The first failure of the job, as reported by its node.
struct NodeFailure {
  int node = 0;
  int exit_code = 1;
  std::string what;  // empty: a rank has failed, and the first cause is not known yet
  // The signal with which its launcher was asked to stop. The other nodes stop in the same way.
  int signal = 0;
};

// What a launcher has published about its start of the ranks.
struct Published {
  std::optional<std::string> ends;  // how its ranks ended
  bool is_gone = false;             // its launcher is gone, and published nothing
};

// The launchers' decision about the next start.
enum class NextStart {
  FOLLOWS,    // every node starts its ranks again
  GIVEN_UP,   // by this launcher, or by the first that answered
  UNDECIDED,  // the store is lost, so the ranks could not meet again
};

class NodeLink {
 public:
  NodeLink(NodeAccess access, NodeStores stores);
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;
  ~NodeLink();

  int descriptor() const { return news_.get(); }  // -1 if no more news can come
  // At most once per start: another node has failed, its launcher is gone, or the store is gone. A lost store
  // is reported as a failure of node 0.
  std::optional<NodeFailure> news(const PollSet& wait);
  // Reports that this node has failed. Returns the job's first failure, which may be another node's.
  NodeFailure report(const NodeFailure& mine);
  const Secret& secret() const { return access_.secret; }

  // ---- finding the first cause (job_cause.h), once this node's ranks have ended
  void publish(const std::string& ends);  // how they ended
  // By node, what the other launchers have published until the deadline. If the store is lost, node 0 is
  // gone.
  std::vector<Published> published(Deadline deadline);
  // Returns the job's first cause: the first one that any node proposed.
  NodeFailure agree(const NodeFailure& mine);
  std::optional<NodeFailure> agreed(Deadline deadline);  // waits until a node has proposed one

  // ---- restarts
  void note_ended_well();  // all ranks of this node have ended well; call it once per start
  bool have_others_ended_well() const { return others_ended_well_; }  // valid after news()
  // Call it when all ranks of this node have ended. After FOLLOWS, later calls are about that start. The
  // first launcher that answers decides for all. If it wished a restart, but this launcher does not, the
  // other launchers' next start ends when this launcher is gone.
  NextStart agree_on_restart(bool wished);

  void finish();  // this node has ended well and will not start again

 private:
  std::optional<NodeFailure> take_news();

  const NodeAccess access_;
  pid_t watcher_ = 0;
  Fd news_;
  std::string unread_;  // unread part of the watcher's lines
  std::unique_ptr<TcpStore> store_;
  int start_ = 0;  // number of the start of the ranks, from 0
  bool others_ended_well_ = false;
};

}  // namespace lockstep
