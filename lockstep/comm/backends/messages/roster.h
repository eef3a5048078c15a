// Roster: the ranks of one group, as this rank sees them: how each is reached, how messages name it, and
// whether it is gone.
//
//   roster.to(3).post(header);               // rank 3 of the group, which may be another rank of the fabric
//   if (roster.is_gone(3)) ...               // it has said goodbye, or its connection has ended
//
// Threads: any thread may ask about the membership. Questions about connections and gone ranks need the
// fabric's lock.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/messages/carrier.h"
#include "lockstep/comm/backends/messages/fabric.h"
#include "lockstep/comm/backends/messages/node.h"
#include "lockstep/comm/group/fork_guard.h"
#include "lockstep/comm/group/group_failure.h"
#include "lockstep/comm/trace/trace_memory.h"

namespace lockstep::messages {

struct Membership {
  std::shared_ptr<Running> running;
  std::uint64_t id = 0;    // the same on all ranks
  std::vector<int> ranks;  // ranks of the fabric, in the order of the group's ranks
  int rank = 0;
  std::string name;
  const Carrier* carrier = nullptr;  // the carrier of the messages: a constant
  GroupOptions options;
  std::shared_ptr<TraceMemory> trace;  // of this rank
  std::shared_ptr<Node> node;          // null if every rank is alone on its machine
};

class Roster {
 public:
  explicit Roster(Membership membership);

  const Membership& membership() const { return membership_; }
  std::uint64_t id() const { return membership_.id; }
  int rank() const { return membership_.rank; }
  int size() const { return static_cast<int>(membership_.ranks.size()); }
  std::string_view backend_name() const;
  GroupPlace place() const;
  const std::shared_ptr<Node>& node() const { return membership_.node; }
  Fabric& fabric() const { return membership_.running->fabric(); }

  bool is_fork() const { return fork_guard_.is_fork(); }
  void refuse_fork(std::string_view what) const { fork_guard_.refuse(what, place()); }
  // Called in a forked child. The fabric's thread and lock are the parent's, so the child must not touch or
  // end them.
  void abandon();

  int fabric_rank(int rank) const { return membership_.ranks.at(static_cast<std::size_t>(rank)); }
  // returns the rank in this group of a rank of the fabric; -1 if it is not a member
  int group_rank(int peer) const;
  Connection& to(int rank) const { return fabric().lines().to(fabric_rank(rank)); }
  void send_to_all(Header header, const std::string& text = {}) const;

  bool is_dead(int rank) const { return fabric().lines().end_of(fabric_rank(rank)) != StreamEnd::NONE; }
  bool has_left(int rank) const { return left_.at(static_cast<std::size_t>(rank)); }
  void note_goodbye(int rank) { left_.at(static_cast<std::size_t>(rank)) = true; }
  bool is_gone(int rank) const { return is_dead(rank) || has_left(rank); }
  bool everybody_is_gone() const;

  std::string describe(int rank) const;  // "rank 3 (pid 4121 at 10.0.0.2:4711)"
  LostPeer describe_lost(int rank, const std::string& last_call) const;

 private:
  Membership membership_;
  const ForkGuard fork_guard_{};
  std::vector<bool> left_;
};

}  // namespace lockstep::messages
