#include "lockstep/parallel/zero/master_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
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

// On the host: pinned memory, unless it is to be in a file.
at::Tensor MasterWeights::room_for(const at::Tensor& wide) const {
  if (memory_.holder() != nullptr) return memory_.zeros_like(wide);
  return at::empty(wide.sizes(), wide.options().pinned_memory(true));
}

void MasterWeights::keep(std::vector<at::Tensor> parts, Which which) {
  parts_ = std::move(parts);
  masters_.assign(parts_.size(), at::Tensor());
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const bool widens = which.widens && is_narrow(parts_[i]);
    const bool moves = which.on_host && !parts_[i].is_cpu();
    if (!widens && !moves) continue;
    at::Tensor wide = parts_[i].detach();
    if (widens) wide = wide.to(at::kFloat);
    if (which.on_host) wide = wide.to(at::kCPU);
    masters_[i] =
        (which.on_host ? room_for(wide) : memory_.zeros_like(wide)).copy_(wide).requires_grad_(true);
  }
}

bool MasterWeights::is_wider(const at::Tensor& tensor) const {
  for (std::size_t i = 0; i < masters_.size(); ++i)
    if (has(i) && masters_[i].is_same(tensor)) return masters_[i].scalar_type() != parts_[i].scalar_type();
  return false;
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
    // Is rounded on the part's device: on the host, the rounded values would not be in pinned memory.
    if (has(i)) parts_[i].copy_(masters_[i].to(parts_[i].device(), /*non_blocking=*/true));
  }
}

at::Tensor MasterWeights::gradient_of(std::size_t parameter, const at::Tensor& gradient) const {
  const at::Tensor& stepped = has(parameter) ? masters_[parameter] : parts_[parameter];
  if (stepped.device() == gradient.device()) return gradient.to(stepped.scalar_type());
  return at::empty(stepped.sizes(), stepped.options().requires_grad(false).pinned_memory(true))
      .copy_(gradient, /*non_blocking=*/true);
}

// Compared as bits: NaN is NaN, and the two zeros differ.
void MasterWeights::follow() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (!has(i)) continue;
    const at::Tensor part = parts_[i].detach().to(masters_[i].device());
    if (part.scalar_type() == masters_[i].scalar_type()) {
      masters_[i].copy_(part);
      continue;
    }
    const at::Tensor rounded = masters_[i].to(part.scalar_type());
    const at::Tensor is_same = rounded.view(at::kShort).eq(part.view(at::kShort));
    masters_[i].copy_(at::where(is_same, masters_[i], part.to(at::kFloat)));
  }
}

}  // namespace lockstep
