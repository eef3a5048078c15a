// The launchers of one job on several machines: who starts which ranks, and telling each other when a rank fails. They talk over
// a TCP store at MASTER_ADDR:MASTER_PORT that a process of node 0's launcher serves; the ranks meet over the same store.
//
//   const Nodes nodes(access);                    // node 0 forks the process that serves the store
//   Nodes::Joined joined = nodes.meet(ranks_here, job_id, deadline);    // blocks until all launchers are here
//   ... in the process that supervises: ...
//   NodeLink link(access, std::move(joined.store));                          // forks the watcher
//   wait.want_read(link.descriptor()); ... if (auto news = link.news(wait)) stop(*news);
//   link.report({node, 137, "rank 3 failed first: killed by SIGKILL"});       // the first report of the job counts
//   link.finish();                                // this node is done
//
// The process that serves the store ends when all nodes are done or gone; node 0's launcher waits for it.
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

class Nodes {
 public:
  // Node 0: starts the process that serves the store. Fails: SystemError when the address cannot be had.
  explicit Nodes(NodeAccess access);

  struct Joined {
    int first_rank = 0;
    int world_size = 0;
    std::string job_id;  // node 0's
    // The connection by which this launcher exists: when its last copy is closed, before finish(), the node is gone.
    std::unique_ptr<TcpStore> store;
  };
  // Fails: Timeout naming the nodes that did not come; StoreError (another secret); InvalidArgument: a node number that is taken,
  // or launchers that were told different numbers of nodes.
  Joined meet(int ranks_here, const std::string& job_id, Deadline deadline) const;

  pid_t server() const { return server_; }  // 0: another node's

 private:
  NodeAccess access_;
  pid_t server_ = 0;
};

// The first failure of the job, as its node tells it.
struct NodeFailure {
  int node = 0;
  int exit_code = 1;
  std::string what;
};

class NodeLink {
 public:
  NodeLink(NodeAccess access, std::unique_ptr<TcpStore> store);
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;
  ~NodeLink();

  int descriptor() const { return news_.get(); }  // -1: there is no more to come
  std::optional<NodeFailure> news(
      const PollSet& wait);  // once, when another node has failed or its launcher is gone
  // Tells the job that this node has failed; what counts as the job's first failure, which may be another node's.
  NodeFailure report(const NodeFailure& mine);
  const Secret& secret() const { return access_.secret; }
  void finish();  // this node has ended well

 private:
  const NodeAccess access_;
  pid_t watcher_ = 0;
  Fd news_;
  std::unique_ptr<TcpStore> store_;
};

}  // namespace lockstep
