// int8: gradients travel as 8-bit integers. Each chunk of up to 512 elements has a scale of its own.
//
//   ddp.register_comm_hook("int8");
//
// What        value = integer * scale, where scale is the largest magnitude of the chunk divided by 127.
//             Every rank averages its slice of all ranks' gradients, quantises the average again, and sends
//             it to all. So the bytes that a rank sends and receives do not grow with the number of ranks.
//             (Python's quantization hooks gather all gradients on every rank.)
// Sends       One byte per element to the ranks that average, and 1/size() of that to all: an all_to_all and
//             an all_gather per bucket. The second starts at the end of backward. Scales are float32 (float64
//             for float64).
// Bound       0.8 % of the largest magnitude in any rank's gradient, for any element: half a step twice. In
//             practice the largest magnitude of the chunk counts.
// Not finite  A chunk with such a value becomes NaN on all ranks.
// On a GPU    Gradients are copied to the host and travel over the CPU's backend, which pays only on slow
//             networks.
// State       none.
#pragma once

#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"
#include "lockstep/parallel/gradients/hooks/int8_slices.h"

namespace lockstep {

class Int8Hook : public CommHook {
 public:
  static constexpr std::int64_t CHUNK = Int8Slices<float>::CHUNK;

  std::string describe() const override { return "int8"; }
  HookStep run(const GradBucket& bucket) override;
  HookErrorBound error_bound(at::ScalarType dtype, int ranks) const override;

 private:
  template <typename Real> HookStep run_as(const GradBucket& bucket);

  HookMemory to_average_, received_, averaged_, gathered_;
};

}  // namespace lockstep
