#include "lockstep/parallel/pipeline/lent_values.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep {

LentValues::LentValues(const ProcessGroup& group)
    : group_(group),
      ranks_share_memory_(group.backend().memory_of(group.rank(), /*place=*/0, /*bytes=*/0) != nullptr) {}

at::Tensor LentValues::lend(const at::Tensor& value) const {
  Backend& backend = group_.backend();
  const std::shared_ptr<void> memory = backend.make_common(value.nbytes(), /*holders=*/2);
  at::from_blob(memory.get(), value.sizes(), value.scalar_type()).copy_(value);
  return at::tensor({static_cast<std::int64_t>(backend.place_of(memory.get()).value())}, at::kLong);
}

at::Tensor LentValues::hold(const at::Tensor& place, const ValueSpec& spec, int lender) const {
  const auto number = static_cast<std::uint64_t>(place.item<std::int64_t>());
  std::shared_ptr<void> memory = group_.backend().hold_common(lender, number, bytes_of(spec));
  void* const data = memory.get();
  // A resize moves the value to private memory, as it would move any other.
  return at::for_blob(data, spec.sizes)
      .deleter([memory = std::move(memory)](void*) {})
      .options(spec.dtype)
      .allocator(c10::GetCPUAllocator())
      .resizeable_storage()
      .make_tensor();
}

}  // namespace lockstep
