#include "lockstep/parallel/gradients/hooks/error_feedback.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::string_view ERROR_PREFIX = "error.";

}  // namespace

void ErrorFeedback::add_to(const std::string& name, const at::Tensor& contribution) const {
  const auto found = errors_.find(name);
  if (found == errors_.end()) return;
  const at::Tensor& error = found->second;
  if (error.sizes() != contribution.sizes() || error.scalar_type() != contribution.scalar_type()) {
    throw InvalidArgument(lockstep::str("the state of the communication hook has ", error.numel(), " ",
                                        error.scalar_type(), " for \"", printable(name),
                                        "\", whose gradient is ", contribution.numel(), " ",
                                        contribution.scalar_type(), ": it is of another model"));
  }
  contribution.add_(error);
}

void ErrorFeedback::save(CommHook::State& state) const {
  for (const auto& [name, error] : errors_) state.insert(std::string(ERROR_PREFIX) + name, error.clone());
}

bool ErrorFeedback::load(const std::string& key, const at::Tensor& value) {
  if (!key.starts_with(ERROR_PREFIX)) return false;
  errors_[key.substr(ERROR_PREFIX.size())] = value.detach().clone().view({-1});
  return true;
}

}  // namespace lockstep
