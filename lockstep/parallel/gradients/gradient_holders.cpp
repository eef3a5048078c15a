#include "lockstep/parallel/gradients/gradient_holders.h"

namespace lockstep {
namespace {

bool is_dense(const at::Tensor& tensor) { return tensor.defined() && tensor.layout() == c10::kStrided; }

}  // namespace

std::vector<std::size_t> kept_buckets(const std::vector<at::Tensor>& flats,
                                      const std::vector<const GradientSlot*>& slots,
                                      const std::vector<std::size_t>& bucket_of) {
  std::vector<std::size_t> known(flats.size(), 1);  // expected number of references to each bucket's memory
  std::vector<bool> is_loose(flats.size(), false);
  std::vector<bool> is_kept(flats.size(), false);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const GradientSlot& slot = *slots[i];
    const std::size_t bucket = bucket_of[i];
    const bool is_installed = slot.is_installed();
    known[bucket] += is_installed && !slot.parameter().grad().is_same(slot.alias()) ? 2 : 1;
    if (is_installed) continue;
    is_loose[bucket] = true;
    if (slot.alias().use_count() > 1) is_kept[bucket] = true;
  }
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < flats.size(); ++i) {
    if (is_loose[i] && (is_kept[i] || flats[i].storage().use_count() > known[i])) kept.push_back(i);
  }
  return kept;
}

GradientHolders::GradientHolders(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) parameters_.push_back(tensor);
}

bool GradientHolders::hold(const at::Tensor& grad, const at::Tensor& incoming) {
  if (!is_dense(grad)) return false;
  const at::Storage& storage = grad.storage();
  if (is_dense(incoming) && incoming.storage().is_alias_of(storage)) return false;
  if (grad.use_count() > 1) return true;
  if (storage.use_count() == 1) return false;
  if (grads_in_.empty()) {
    for (const at::Tensor& parameter : parameters_) {
      if (is_dense(parameter.grad())) ++grads_in_[parameter.grad().storage().unsafeGetStorageImpl()];
    }
  }
  const auto found = grads_in_.find(storage.unsafeGetStorageImpl());
  return storage.use_count() > (found == grads_in_.end() ? 1 : found->second);
}

}  // namespace lockstep
