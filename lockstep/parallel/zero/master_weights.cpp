#include "lockstep/parallel/zero/master_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <utility>

#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

bool is_narrow(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

}  // namespace

void MasterWeights::keep(std::vector<at::Tensor> parts) {
  parts_ = std::move(parts);
  masters_.assign(parts_.size(), at::Tensor());
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!is_narrow(parts_[i])) continue;
    const at::Tensor wide = parts_[i].detach().to(at::kFloat);
    masters_[i] = memory_.zeros_like(wide).copy_(wide).requires_grad_(true);
  }
}

bool MasterWeights::is_one(const at::Tensor& tensor) const {
  return std::any_of(masters_.begin(), masters_.end(),
                     [&](const at::Tensor& master) { return master.defined() && master.is_same(tensor); });
}

std::size_t MasterWeights::bytes() const {
  std::size_t bytes = 0;
  for (const at::Tensor& master : masters_) bytes += master.defined() ? master.nbytes() : 0;
  return bytes;
}

optim::RoundedCopy MasterWeights::copy_of(std::size_t parameter) const {
  if (!has(parameter)) return {};
  const at::Tensor& part = parts_[parameter];
  return {static_cast<std::byte*>(part.mutable_data_ptr()), dtype_of(part.scalar_type())};
}

void MasterWeights::round() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (has(i)) parts_[i].copy_(masters_[i]);
  }
}

// Compared as bits: NaN is NaN, and the two zeros differ.
void MasterWeights::follow() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (!has(i)) continue;
    const at::Tensor rounded = masters_[i].to(parts_[i].scalar_type());
    const at::Tensor is_same = rounded.view(at::kShort) == parts_[i].detach().view(at::kShort);
    masters_[i].copy_(at::where(is_same, masters_[i], parts_[i].to(at::kFloat)));
  }
}

}  // namespace lockstep
