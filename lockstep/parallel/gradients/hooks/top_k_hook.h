// topk: each rank sends only its largest gradient elements, and adds the others to its next gradient (error
// feedback). Lin et al., "Deep Gradient Compression", ICLR 2018, without its momentum correction; Stich et
// al., "Sparsified SGD with Memory", NeurIPS 2018.
//
//   ddp.register_comm_hook(std::make_shared<dist::TopKHook>(dist::TopKOptions{.ratio = 0.01}));
//
// What        Of each bucket, every rank sends the ceil(ratio * elements) elements with the largest
//             magnitudes of its own. The result is the mean of the sent values.
// Sends       A value of the gradient's dtype and a 4-byte index for each element, in one all_gather per
//             bucket. Every rank receives size() times that, so it pays while ratio * size() is well below 1.
// Memory      With error feedback one gradient (float32 for 16-bit types).
// Bound       In one step sqrt(1 - ratio) of the mean of the ranks' norms. Over many steps, omitted values
//             are sent later.
// Not finite  Such values count as the largest, so they are sent, and every rank sees them. No rank keeps one
//             back.
#pragma once

#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"
#include "lockstep/parallel/gradients/hooks/error_feedback.h"

namespace lockstep {

struct TopKOptions {
  double ratio = 0.01;  // share of a bucket's elements; above 0, at most 1
  bool use_error_feedback = true;
};

class TopKHook : public CommHook {
 public:
  // Throws InvalidArgument for another ratio.
  explicit TopKHook(const TopKOptions& options = {});
  std::string describe() const override;
  HookStep run(const GradBucket& bucket) override;
  HookErrorBound error_bound(at::ScalarType dtype, int ranks) const override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  const TopKOptions options_;
  ErrorFeedback errors_;
  HookMemory messages_;  // of this rank
  HookMemory gathered_;  // of all ranks
};

}  // namespace lockstep
