#include "lockstep/parallel/zero/parameter_exchange.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <set>
#include <utility>

#include "lockstep/base/round_up.h"
#include "lockstep/parallel/replicas/broadcast_tensors.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

constexpr std::size_t ALIGNMENT = 64;  // in bytes: a cache line, and the widest vector register

// Size in elements.
std::int64_t padded(const at::Tensor& parameter) {
  return static_cast<std::int64_t>(round_up(parameter.nbytes(), ALIGNMENT) / parameter.itemsize());
}

// The place from `offset` on, with the parameter's own strides if these leave no gaps.
at::Tensor place_in(const at::Tensor& flat, std::int64_t offset, const at::Tensor& parameter) {
  const at::Tensor elements = flat.narrow(0, offset, parameter.numel());
  if (!parameter.is_non_overlapping_and_dense()) return elements.view(parameter.sizes());
  return elements.as_strided(parameter.sizes(), parameter.strides());
}

}  // namespace

ParameterExchange::ParameterExchange(ProcessGroup group, bool as_bucket_view)
    : group_(std::move(group)), as_bucket_view_(as_bucket_view) {}

void ParameterExchange::set_parameters(std::vector<std::vector<at::Tensor>> by_owner) {
  by_owner_ = std::move(by_owner);
  if (!as_bucket_view_) return;
  const c10::NoGradGuard no_grad;
  std::set<at::ScalarType> dtypes;
  for (const auto& own : by_owner_)
    for (const at::Tensor& parameter : own) dtypes.insert(parameter.scalar_type());
  buckets_.clear();
  for (const at::ScalarType dtype : dtypes) {
    buckets_.push_back(make_bucket(dtype));
    move_in(buckets_.back());
  }
}

ParameterExchange::Bucket ParameterExchange::make_bucket(at::ScalarType dtype) const {
  Bucket bucket;
  std::vector<std::int64_t> sizes;  // of the parts
  for (const auto& own : by_owner_) {
    sizes.push_back(0);
    for (const at::Tensor& parameter : own) {
      if (parameter.scalar_type() != dtype) continue;
      bucket.parameters.push_back(parameter);
      sizes.back() += padded(parameter);
    }
  }
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) total += size;
  const at::Device device = bucket.parameters.front().device();
  bucket.flat = device.is_cpu() ? shared_empty({total}, dtype, group_)
                                : at::zeros({total}, at::TensorOptions(device).dtype(dtype));
  std::int64_t offset = 0;
  for (const std::int64_t size : sizes) {
    bucket.parts.push_back(bucket.flat.narrow(0, offset, size));
    offset += size;
  }
  offset = 0;  // parameters come in the order of their owners
  for (const at::Tensor& parameter : bucket.parameters) {
    bucket.places.push_back(place_in(bucket.flat, offset, parameter));
    offset += padded(parameter);
  }
  return bucket;
}

void ParameterExchange::move_in(const Bucket& bucket) {
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    const at::Tensor& parameter = bucket.parameters[i];
    const at::Tensor& place = bucket.places[i];
    const bool is_there =
        parameter.const_data_ptr() == place.const_data_ptr() && parameter.strides() == place.strides();
    if (is_there || parameter.numel() == 0) continue;
    place.copy_(parameter.detach());
    parameter.set_data(place);
  }
}

void ParameterExchange::run() {
  const c10::NoGradGuard no_grad;
  if (as_bucket_view_) {
    for (const Bucket& bucket : buckets_) {
      move_in(bucket);
      all_gather(bucket.parts, bucket.parts[static_cast<std::size_t>(group_.rank())], group_);
    }
  }
  for (int owner = 0; owner < group_.size(); ++owner) {
    const auto& parameters = by_owner_[static_cast<std::size_t>(owner)];
    if (!as_bucket_view_) broadcast_tensors(parameters, group_, {owner});
    if (owner == group_.rank()) continue;
    for (const at::Tensor& parameter : parameters) parameter.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace lockstep
