// Communication hooks without memory: allreduce, fp16_compress, bf16_compress, noop.
//
//   ddp.register_comm_hook("bf16_compress");
#pragma once

#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"

namespace lockstep {

// What DDP does without a hook, bit for bit.
class AllReduceHook : public CommHook {
 public:
  std::string describe() const override { return "allreduce"; }
  HookStep run(const GradBucket& bucket) override;
  HookErrorBound error_bound(at::ScalarType dtype, int ranks) const override;
};

// Gradients travel as float16 or bfloat16. The sum is kept in float32 and divided once. So unlike in Python
// it does not overflow, and does not lose bits with every rank. (On a GPU NCCL sums in the 16-bit type.) With
// two ranks the bits are Python's unless half a gradient underflows there. A bucket of that dtype, or of one
// that is not wider, is sent as it is.
class CompressHook : public CommHook {
 public:
  explicit CompressHook(at::ScalarType type) : type_(type) {}  // at::kHalf or at::kBFloat16
  std::string describe() const override { return type_ == at::kHalf ? "fp16_compress" : "bf16_compress"; }
  HookStep run(const GradBucket& bucket) override;
  HookErrorBound error_bound(at::ScalarType dtype, int ranks) const override;

 private:
  at::ScalarType type_;
  HookMemory compressed_;
};

// Sends nothing. Each rank keeps its own gradients.
class NoopHook : public CommHook {
 public:
  std::string describe() const override { return "noop"; }
  HookStep run(const GradBucket&) override { return {}; }
  HookErrorBound error_bound(at::ScalarType dtype, int ranks) const override;
};

}  // namespace lockstep
