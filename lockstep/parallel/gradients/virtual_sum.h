// VirtualSum: averages a bucket over virtual ranks (job/virtual_ranks.h), in place of a plain all_reduce. It
// runs as a communication hook, once for each virtual rank of this process. All runs but the last add to sums
// that this process keeps. The last one starts the communication.
//
//   VirtualSum sum(current_virtual_rank_plan(), get_rank());
//   sum.begin_round();
//   sum.begin_turn(0);  sum.run(bucket);                      // nothing to wait for
//   sum.begin_turn(1);                                       // the last turn
//   HookStep step = sum.run(bucket);                         // the bucket becomes the average
//
// Order      The tree over all virtual ranks (job/virtual_rank_plan.h). Sums are stored as in a binary
//            counter, one for each level of the tree. float16 and bfloat16 are added in float32 and rounded
//            once, at the end. So the bits are those of DistributedDataParallel with one process for each
//            virtual rank.
// Processes  If each process has one subtree of the tree, one all_reduce and one division follow. Otherwise
//            each of N processes gets one N-th of all processes' subtrees (all_to_all). It adds up the rest
//            of the tree there and divides. Then all gather the parts.
// Memory     log2 of the number of virtual ranks here, plus one, sums of a bucket; 16-bit numbers as float32.
//            With all_to_all also the message with this process's subtrees, and one N-th of all subtrees.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/job/virtual_rank_plan.h"
#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"

namespace lockstep {

class VirtualSum : public CommHook {
 public:
  VirtualSum(VirtualRankPlan plan, int process);

  // Forgets the sums of a round that was left.
  void begin_round();
  // From now on run() is for this virtual rank.
  void begin_turn(int virtual_rank) { turn_ = virtual_rank; }
  bool is_last_turn() const { return turn_ == share().last(); }

  std::string describe() const override;
  HookStep run(const GradBucket& bucket) override;

 private:
  struct Sums {  // those of one bucket
    explicit Sums(int virtual_ranks) : tree(virtual_ranks) {}
    VirtualTree tree;
    std::vector<at::Tensor> partial;  // the sums of the tree
    std::vector<at::Tensor> spare;    // memory of earlier sums, for reuse
    void forget();
  };
  const VirtualShare& share() const { return plan_.shares[process_]; }
  Sums& sums_of(std::size_t bucket);
  void keep(Sums& sums, const at::Tensor& values) const;
  HookStep reduce_root(const at::Tensor& root, const GradBucket& bucket) const;
  HookStep exchange(const std::vector<at::Tensor>& roots, const GradBucket& bucket);
  void add_up_parts(const at::Tensor& parts, std::int64_t each) const;

  const VirtualRankPlan plan_;
  const std::size_t process_;
  int turn_ = 0;
  std::vector<Sums> sums_;  // by bucket
  HookMemory wide_;         // sum of all, for 16-bit numbers
  HookMemory messages_;
  HookMemory parts_;
  HookMemory gathered_;
};

}  // namespace lockstep
