// Shared by the lossy hooks: the numbers of a bucket and of one parameter in it, their precision, and memory
// for messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>

#include "lockstep/parallel/gradients/hooks/comm_hook.h"

namespace lockstep {

// The numbers of a bucket in a type in which they can be added up: the numbers themselves, or for 16-bit
// types a float32 copy.
at::Tensor wide_reals(const GradBucket& bucket);
// The elements of one parameter in reals() of its bucket, or in a tensor of the same length.
at::Tensor part_of(const at::Tensor& reals, const GradBucketPart& part);
bool is_16_bits(at::ScalarType dtype);
// Half the distance from 1 to the next number: the largest relative error of one rounding.
double unit_roundoff(at::ScalarType dtype);

// Returns flat zeros for the group's collectives. On the CPU they lie in the group's memory, which is reduced
// in place.
at::Tensor communicated_zeros(std::int64_t count, const at::TensorOptions& of, const ProcessGroup& group);

// Keeps such tensors from step to step, one per bucket and purpose.
class HookMemory {
 public:
  at::Tensor of(std::size_t bucket, std::int64_t count, const at::TensorOptions& of,
                const ProcessGroup& group);

 private:
  std::map<std::size_t, at::Tensor> tensors_;
};

}  // namespace lockstep
