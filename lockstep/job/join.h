// Join: training loops of different lengths. A rank without further inputs takes part in the collectives of
// the other ranks, without an effect, until all are done. torch.distributed.algorithms.Join.
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
//   dist::Join joined({&ddp}, {.throw_on_early_termination = true});   // the same in two parts
//   train_epoch();                                                     // the loop, with forwards of ddp
//   joined.wait();
//
// What happens  before a joinable's ranks communicate, each announces it to the other ranks (an all_gather of
//               16 bytes). A rank in wait() thus learns which collectives follow, and runs the joinable's
//               main_hook(), which takes part without changing the result. When all ranks are in wait(),
//               post_hook() makes the ranks equal.
// Joinables     DistributedDataParallel, and classes of the program's own (below), in any number and order.
//               Unlike in Python each one announces its own calls, so one may communicate more often than
//               another (accumulation, two models).
// Who           every rank of the joinables' group, which must be one group. All ranks pass the same
//               joinables in the same order and the same options.
// Averages      divide_by_initial_world_size: gradients are divided by size(), so a rank without inputs
//               counts as a rank with zero gradients. Otherwise by the number of ranks that still have
//               inputs.
// Early end     throw_on_early_termination: when one rank has no more inputs, all throw Mismatch: ranks with
//               inputs from their next forward, the rest from wait(). The group stays usable.
// Other calls   a rank without inputs cannot take part in collectives of the loop that no joinable announces:
//               SyncBatchNorm, an all_reduce of the loss. They meet the announcement of a rank that has
//               joined, and are a Mismatch on all ranks. Use throw_on_early_termination with them.
// Blocks        wait(), until all ranks are there. An exception in the loop ends the join on this rank. Other
//               ranks then learn of this rank's end or, at the deadline, that it did not come.
// Lifetime      the joinables must not move until the Join is destroyed. Its destructor does not communicate.
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
  bool enable = true;  // false: no announcements, and wait() has no effect; for loops of equal length
  bool throw_on_early_termination = false;
};

// The result of the ranks' announcements.
struct JoinRound {
  int active = 0;           // ranks that still have inputs; 0 outside of a join
  GroupRank newest_active;  // the largest of them; 0 outside of a join
};

struct JoinEnd {
  bool is_last_joiner = false;  // this rank never ran main_hook(): no loop was longer than its own
  GroupRank newest;             // the largest rank with is_last_joiner
};

// The actions of a joinable on a rank that has no more inputs.
class JoinHook {
 public:
  virtual ~JoinHook() = default;
  // Other ranks announced `what`: takes part in those collectives.
  virtual void main_hook(std::uint32_t /*what*/, const JoinRound& /*round*/) {}
  // All ranks have ended their loops.
  virtual void post_hook(const JoinEnd& /*end*/) {}
};

// An announcement in flight.
class JoinNotice {
 public:
  // Blocks until all ranks have announced something. Throws Mismatch in two cases. Ranks announced different
  // calls or got different options: this ends the group. Or a rank has no more inputs and
  // throw_on_early_termination is set: the group stays usable.
  virtual JoinRound wait() = 0;
  virtual ~JoinNotice() = default;
};

class JoinContext;

// The join that a joinable takes part in. Parts of the joinable that communicate for it may keep this object,
// which outlives the joinable.
class JoinMembership {
 public:
  // See Join::notify_join_context().
  std::shared_ptr<JoinNotice> announce(std::uint32_t what);
  JoinOptions options() const;  // outside of a join: {.enable = false}

 private:
  friend class Join;
  friend class Joinable;
  std::shared_ptr<JoinContext> context_;  // null outside of a join
  std::uint32_t index_ = 0;               // of the joinable within its join
};

// An object that communicates in a training loop, and that another rank can stand in for.
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
  // Throws InvalidArgument if one of the two is in a join.
  Joinable& operator=(Joinable&& other);  // NOLINT(performance-noexcept-move-constructor)

  const std::shared_ptr<JoinMembership>& join_membership() const { return membership_; }

 private:
  friend class Join;
  std::shared_ptr<JoinMembership> membership_ = std::make_shared<JoinMembership>();
};

class Join {
 public:
  // Throws InvalidArgument for no joinables, one that is already in a join, groups that differ, or a group
  // without this process.
  explicit Join(std::vector<Joinable*> joinables, const JoinOptions& options = {});
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // Called once, when this rank has no more inputs.
  void wait();

  // A joinable calls it before its collectives. `what` is a number that tells its main_hook which collectives
  // follow. Starts the exchange and returns, so the collectives may follow at once. Outside of a join the
  // notice's result has no active ranks.
  static std::shared_ptr<JoinNotice> notify_join_context(Joinable& joinable, std::uint32_t what = 0);

 private:
  void leave();

  std::vector<Joinable*> joinables_;
  std::vector<std::shared_ptr<JoinHook>> hooks_;
  std::shared_ptr<JoinContext> context_;  // null if not enabled, and after the end
};

// Runs `loop` within a Join, then waits.
void join(const std::vector<Joinable*>& joinables, const std::function<void()>& loop,
          const JoinOptions& options = {});

}  // namespace lockstep
