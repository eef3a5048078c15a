#include "lockstep/optim/model_part.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "lockstep/base/str.h"

namespace lockstep::optim {
namespace {

struct Mark {
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;  // keeps the address from being used again
  unsigned parts = 0;
};

struct Marks {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, Mark> of;
  std::size_t sweep_at = 1024;
};

Marks& marks() {
  static auto* const all = new Marks;  // outlives static destructors
  return *all;
}

// Forgets tensors that are gone, each time their number may have doubled.
void sweep(Marks& all) {
  if (all.of.size() < all.sweep_at) return;
  std::erase_if(all.of, [](const auto& entry) { return entry.second.tensor.expired(); });
  all.sweep_at = std::max<std::size_t>(1024, 2 * all.of.size());
}

}  // namespace

void mark_as_part(const at::Tensor& parameter, ModelPart part) {
  Marks& all = marks();
  const std::lock_guard lock(all.mutex);
  sweep(all);
  const auto [entry, is_new] =
      all.of.try_emplace(parameter.unsafeGetTensorImpl(),
                         Mark{c10::weak_intrusive_ptr<c10::TensorImpl>(parameter.getIntrusivePtr()), 0});
  entry->second.parts |= static_cast<unsigned>(part);
}

bool is_part(const at::Tensor& parameter, ModelPart part) {
  Marks& all = marks();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of.find(parameter.unsafeGetTensorImpl());
  return found != all.of.end() && (found->second.parts & static_cast<unsigned>(part)) != 0;
}

std::string why_not_the_models_norm(const std::vector<at::Tensor>& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool is_of_stage = is_part(parameters[i], ModelPart::STAGE);
    if (!is_of_stage && !is_part(parameters[i], ModelPart::PIECE)) continue;
    return lockstep::str(
        "parameter ", i, ", of shape ", parameters[i].sizes(),
        is_of_stage ? ", belongs to one stage of a pipeline"
                    : ", is this rank's piece of a tensor-parallel parameter",
        ". So the norm of this rank's gradients is not that of the model. Call GradientNorm::"
        "clip_grad_norm_()",
        is_of_stage ? "" : ", or tensor_parallel::clip_grad_norm_(*net, max_norm, group)");
  }
  return "";
}

}  // namespace lockstep::optim
