#include "lockstep/parallel/zero/operator_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "lockstep/parallel/zero/gathered_units.h"

namespace lockstep {
namespace {

// Outlives static destructors, because watches may.
struct Watched {
  std::shared_mutex mutex;
  std::vector<GatheredUnits*> units;
  at::CallbackHandle handle = 0;
};
Watched& watched() {
  static auto* const instance = new Watched;
  return *instance;
}

thread_local int depth = 0;  // operators that run on this thread, each within the other

// `is_new`: no operator runs around this one, and it has read no unit yet.
void use(const Watched& all, const at::Tensor& tensor, bool& is_new) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cpu()) return;
  const void* const address = tensor.storage().data();
  for (GatheredUnits* units : all.units) {
    if (!units->contains(address)) continue;
    if (std::exchange(is_new, false)) units->begin_operator();
    units->use(tensor.storage().unsafeGetStorageImpl(), address);
  }
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  Watched& all = watched();
  const std::shared_lock lock(all.mutex);
  bool is_new = depth++ == 0;
  for (const c10::IValue& input : function.inputs()) {
    if (input.isTensor()) {
      use(all, input.toTensor(), is_new);
    } else if (input.isTensorList()) {
      for (const at::Tensor& tensor : input.toTensorVector()) use(all, tensor, is_new);
    } else if (input.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : input.toOptionalTensorVector()) {
        if (tensor) use(all, *tensor, is_new);
      }
    }
  }
  return nullptr;
}

void end(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) { --depth; }

}  // namespace

OperatorWatch::OperatorWatch(GatheredUnits& units) : units_(units) {
  Watched& all = watched();
  const std::unique_lock lock(all.mutex);
  if (all.units.empty())
    all.handle = at::addGlobalCallback(
        at::RecordFunctionCallback(begin, end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  all.units.push_back(&units);
}

OperatorWatch::~OperatorWatch() {
  Watched& all = watched();
  const std::unique_lock lock(all.mutex);
  std::erase(all.units, &units_);
  if (all.units.empty()) at::removeCallback(all.handle);
}

}  // namespace lockstep
