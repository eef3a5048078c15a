// topk: each rank sends its largest gradient elements only; what it keeps back is added to its next gradient
// (error feedback). Lin et al., "Deep Gradient Compression", ICLR 2018, without its momentum correction;
// Stich et al., "Sparsified SGD with Memory", NeurIPS 2018.
//
//   ddp.register_comm_hook(std::make_shared<dist::TopKHook>(dist::TopKOptions{.ratio = 0.01}));
//
// What        of each bucket the ceil(ratio * elements) elements that are largest in magnitude, of which
//             every rank chooses its own. The result is the mean of what was sent.
// Sends       a value of the gradient's dtype and a 4-byte index each, in one all_gather per bucket: every
//             rank receives size() times that. So it pays while ratio * size() is well below 1.
// Memory      with error feedback one gradient (float32 for 16-bit types).
// Bound       of one step: sqrt(1 - ratio) of the mean of the ranks' norms. Of many: what is left out is sent
//             later.
// Not finite  values are the largest of all, so they are sent and every rank sees them; no rank keeps one
//             back.
#pragma once

#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"
#include "lockstep/parallel/gradients/hooks/error_feedback.h"

namespace lockstep {

struct TopKOptions {
  double ratio = 0.01;  // of the elements of a bucket; above 0, at most 1
  bool use_error_feedback = true;
};

class TopKHook : public CommHook {
 public:
  // Throws InvalidArgument for a ratio that is none.
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
