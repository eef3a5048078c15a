// VirtualSum: the average of a bucket over virtual ranks (job/virtual_ranks.h), in place of a plain
// all_reduce. As a communication hook it is run once for each virtual rank of this process. All but the last
// add to sums that this process keeps; the last one starts the communication.
//
//   VirtualSum sum(current_virtual_rank_plan(), get_rank());
//   sum.begin_round();
//   sum.begin_turn(0);  sum.run(bucket);                      // nothing to wait for
//   sum.begin_turn(1);                                       // the last turn
//   HookStep step = sum.run(bucket);                         // the bucket becomes the average
//
// Order      the tree over all virtual ranks (job/virtual_rank_plan.h). Sums lie as in a binary counter,
//            one for each level of the tree. float16 and bfloat16 are added up in float32 and rounded once,
//            at the end. So the bits are those of DistributedDataParallel on as many processes as there are
//            virtual ranks.
// Between    one subtree each: an all_reduce and one division. Otherwise each process gets one part in N of
// processes  all processes' subtrees (all_to_all), adds up the rest of the tree there, divides, and all
// gather
//            the parts.
// Memory     log2 of the share and one more sums of a bucket; 16-bit numbers as float32. With an exchange
//            also the message of this process's subtrees, and one part in N of all subtrees.
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

  // Forgets what a round that was left has added up.
  void begin_round();
  // run() is for this virtual rank from now on.
  void begin_turn(int virtual_rank) { turn_ = virtual_rank; }
  bool is_last_turn() const { return turn_ == share().last(); }

  std::string describe() const override;
  HookStep run(const GradBucket& bucket) override;

 private:
  struct Sums {  // of one bucket
    explicit Sums(int virtual_ranks) : tree(virtual_ranks) {}
    VirtualTree tree;
    std::vector<at::Tensor> partial;  // as the tree's
    std::vector<at::Tensor> spare;    // memory of earlier ones
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
  HookMemory wide_;         // the root of 16-bit numbers
  HookMemory messages_;
  HookMemory parts_;
  HookMemory gathered_;
};

}  // namespace lockstep
