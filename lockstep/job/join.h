// Join: training loops of different lengths. A rank that has no more inputs stands in for itself in what the
// others still do together, until all are done: torch.distributed.algorithms.Join.
//
//   dist::DistributedDataParallel ddp(net);
//   dist::join({&ddp}, [&] {
//     for (auto& batch : loader) {                                     // as many batches as this rank has
//       optimizer.zero_grad();
//       loss_of(ddp->forward(batch.data)).backward();
//       optimizer.step();
//     }
//   });  // here all ranks have the model of the longest loop
//
//   dist::Join joined({&ddp}, {.throw_on_early_termination = true});   // the same in two halves
//   train_epoch();                                                     // the loop, its forwards through ddp
//   joined.wait();
//
// What happens  before a joinable's ranks communicate, each tells the others so (an all_gather of 16 bytes);
//               a rank that waits in wait() learns from it what they are about to do, and runs the joinable's
//               main_hook(), which takes part without changing anything. When all ranks are in wait(),
//               post_hook() makes the ranks alike.
// Joinables     DistributedDataParallel, and classes of one's own (below), in any number and order: unlike in
//               Python each one announces what it does itself, so one may communicate more often than another
//               (accumulation, two models).
// Who           every rank of the joinables' group, which is one group; the same joinables in the same order
//               and the same options on all ranks.
// Averages      divide_by_initial_world_size: gradients are divided by size(), so a rank without inputs
//               counts as one with zero gradients; otherwise by the number of ranks that still have inputs.
// Early end     throw_on_early_termination: when one rank has no more inputs, all throw Mismatch: those that
//               have some from their next forward, the others from wait(). The group stays usable.
// Other calls   collectives of the loop that no joinable announces cannot be stood in for: SyncBatchNorm, an
//               all_reduce of the loss. They meet the announcement of a rank that has joined, and are a
//               Mismatch on all ranks: use throw_on_early_termination with them.
// Blocks        wait(), until all ranks are there. An exception in the loop ends the join on this rank; the
//               others then hear of this rank's end or, at the deadline, that it did not come.
// Lifetime      the joinables stay where they are until the Join is destroyed. Its destructor does not
//               communicate.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct JoinOptions {
  bool divide_by_initial_world_size = true;
  bool enable = true;  // false: nothing is announced, wait() does nothing; for inputs that are even
  bool throw_on_early_termination = false;
};

// What the ranks announced.
struct JoinRound {
  int active = 0;           // ranks that still have inputs; outside of a join 0
  GroupRank newest_active;  // the largest of them; 0 outside of a join
};

struct JoinEnd {
  bool is_last_joiner = false;  // this rank never stood in for anything: its loop was (one of) the longest
  GroupRank newest;             // the largest rank of which that is true
};

// What a joinable does on a rank that has no more inputs.
class JoinHook {
 public:
  virtual ~JoinHook() = default;
  // The others announced `what`: takes part in those collectives.
  virtual void main_hook(std::uint32_t /*what*/, const JoinRound& /*round*/) {}
  // All ranks have come to the end.
  virtual void post_hook(const JoinEnd& /*end*/) {}
};

// An announcement under way.
class JoinNotice {
 public:
  // Blocks until all ranks have announced something. Throws Mismatch: ranks announce different things or were
  // given different options, which ends the group; a rank has no more inputs and throw_on_early_termination
  // is set, which does not.
  virtual JoinRound wait() = 0;
  virtual ~JoinNotice() = default;
};

class JoinContext;

// Which join a joinable takes part in. Outlives it: for parts of the joinable that communicate on its behalf.
class JoinMembership {
 public:
  // Join::notify_join_context().
  std::shared_ptr<JoinNotice> announce(std::uint32_t what);
  JoinOptions options() const;  // outside of a join: not enabled

 private:
  friend class Join;
  friend class Joinable;
  std::shared_ptr<JoinContext> context_;  // null outside of a join
  std::uint32_t index_ = 0;               // among its joinables
};

// Whatever communicates in a training loop and can be stood in for.
//
//   class Counter : public dist::Joinable {
//    public:
//     void add() {                                                     // once per iteration
//       dist::Join::notify_join_context(*this);
//       int one = 1;
//       dist::comm::all_reduce(group_, std::span(&one, 1));
//       total += one;
//     }
//     // its main_hook all_reduces a zero
//     std::shared_ptr<dist::JoinHook> join_hook(const dist::JoinOptions&) override;
//     const dist::ProcessGroup& join_process_group() const override { return group_; }
//     int total = 0;
//
//    private:
//     dist::ProcessGroup group_ = dist::world();
//   };
class Joinable {
 public:
  Joinable(const Joinable&) = delete;
  Joinable& operator=(const Joinable&) = delete;
  virtual ~Joinable() = default;
  virtual std::shared_ptr<JoinHook> join_hook(const JoinOptions& options) = 0;
  virtual const ProcessGroup& join_process_group() const = 0;

 protected:
  Joinable() = default;
  Joinable(Joinable&&) = default;
  // Throws InvalidArgument within a join.
  Joinable& operator=(Joinable&& other);  // NOLINT(performance-noexcept-move-constructor)

  const std::shared_ptr<JoinMembership>& join_membership() const { return membership_; }

 private:
  friend class Join;
  std::shared_ptr<JoinMembership> membership_ = std::make_shared<JoinMembership>();
};

class Join {
 public:
  // Throws InvalidArgument: no joinables, one that is in a join already, groups that differ or that this
  // process is not in.
  explicit Join(std::vector<Joinable*> joinables, const JoinOptions& options = {});
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // This rank has no more inputs. Once.
  void wait();

  // For a joinable, before its collectives, of which `what` says which: a number that means something to its
  // main_hook. Starts the exchange and returns; the collectives may follow at once. Outside of a join the
  // answer is that all ranks are active.
  static std::shared_ptr<JoinNotice> notify_join_context(Joinable& joinable, std::uint32_t what = 0);

 private:
  void leave();

  std::vector<Joinable*> joinables_;
  std::vector<std::shared_ptr<JoinHook>> hooks_;
  std::shared_ptr<JoinContext> context_;  // null when not enabled, and after the end
};

// Runs `loop` within a Join, and waits.
void join(const std::vector<Joinable*>& joinables, const std::function<void()>& loop,
          const JoinOptions& options = {});

}  // namespace lockstep
