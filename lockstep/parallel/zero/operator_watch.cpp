#include "lockstep/parallel/zero/operator_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <memory>
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

GatheredUnits* units_of(c10::StorageImpl& storage) {
  Watched& all = watched();
  const std::shared_lock lock(all.mutex);
  const auto found = std::find_if(all.units.begin(), all.units.end(),
                                  [&](const GatheredUnits* units) { return units->contains(storage); });
  return found == all.units.end() ? nullptr : *found;
}

// What an operator reads, while it runs. A storage holds the units in whose memory it lies.
class Reading : public at::ObserverContext {
 public:
  Reading() = default;
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() override {
    for (const One& one : all_) one.units->done(one.unit);
  }
  void add(const at::Tensor& tensor, GatheredUnits& units) {
    const auto unit = units.use(*tensor.storage().unsafeGetStorageImpl());
    if (unit) all_.push_back({.storage = tensor.storage(), .units = &units, .unit = *unit});
  }

 private:
  struct One {
    c10::Storage storage;
    GatheredUnits* units = nullptr;
    std::size_t unit = 0;
  };
  std::vector<One> all_;
};

void read(const at::Tensor& tensor, std::unique_ptr<Reading>& reading) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  GatheredUnits* const units = units_of(*tensor.storage().unsafeGetStorageImpl());
  if (units == nullptr) return;
  if (reading == nullptr) reading = std::make_unique<Reading>();
  reading->add(tensor, *units);
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  std::unique_ptr<Reading> reading;
  for (const c10::IValue& input : function.inputs()) {
    if (input.isTensor()) {
      read(input.toTensor(), reading);
    } else if (input.isTensorList()) {
      for (const at::Tensor& tensor : input.toTensorVector()) read(tensor, reading);
    } else if (input.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : input.toOptionalTensorVector()) {
        if (tensor) read(*tensor, reading);
      }
    }
  }
  return reading;
}

// The context goes with the RecordFunction.
void end(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) {}

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
