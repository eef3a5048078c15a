#include "lockstep/autograd/autocast.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

namespace of_torch = at::autocast;

at::DeviceType checked(at::DeviceType device) {
  const auto& known = of_torch::_AUTOCAST_SUPPORTED_DEVICES;
  if (std::find(known.begin(), known.end(), device) == known.end()) {
    throw InvalidArgument(lockstep::str("autocast: there is none for device \"",
                                        c10::DeviceTypeName(device, /*lower_case=*/true),
                                        "\"; name the device the model runs on, for example at::kCPU"));
  }
  return device;
}

void check_dtype(at::ScalarType dtype, bool enabled) {
  if (!enabled || dtype == at::kHalf || dtype == at::kBFloat16) return;
  throw InvalidArgument(
      lockstep::str("autocast: the dtype is ", dtype,
                    "; it is float16 or bfloat16 (at::kHalf, at::kBFloat16), or enabled = false for "
                    "full precision"));
}

}  // namespace

Autocast::Autocast(at::DeviceType device, std::optional<at::ScalarType> dtype, bool enabled,
                   std::optional<bool> cache_enabled)
    : device_(checked(device)),
      enabled_before_(of_torch::is_autocast_enabled(device)),
      dtype_before_(of_torch::get_autocast_dtype(device)),
      cache_before_(of_torch::is_autocast_cache_enabled()) {
  check_dtype(dtype.value_or(dtype_before_), enabled);
  of_torch::set_autocast_enabled(device_, enabled);
  of_torch::set_autocast_dtype(device_, dtype.value_or(dtype_before_));
  of_torch::increment_nesting();
  of_torch::set_autocast_cache_enabled(cache_enabled.value_or(cache_before_));
}

Autocast::~Autocast() {
  if (of_torch::decrement_nesting() == 0) of_torch::clear_cache();
  of_torch::set_autocast_enabled(device_, enabled_before_);
  of_torch::set_autocast_dtype(device_, dtype_before_);
  of_torch::set_autocast_cache_enabled(cache_before_);
}

AutocastState AutocastState::of_this_thread() {
  AutocastState now;
  for (const at::DeviceType device : of_torch::_AUTOCAST_SUPPORTED_DEVICES) {
    now.devices_.push_back({.device = device,
                            .enabled = of_torch::is_autocast_enabled(device),
                            .dtype = of_torch::get_autocast_dtype(device)});
  }
  now.cache_enabled_ = of_torch::is_autocast_cache_enabled();
  return now;
}

void AutocastState::apply() const {
  for (const OfDevice& one : devices_) {
    of_torch::set_autocast_enabled(one.device, one.enabled);
    of_torch::set_autocast_dtype(one.device, one.dtype);
  }
  of_torch::set_autocast_cache_enabled(cache_enabled_);
}

AutocastState::Guard::Guard(const AutocastState& state) : before_(of_this_thread()) {
  state.apply();
  of_torch::increment_nesting();
}

AutocastState::Guard::~Guard() {
  if (of_torch::decrement_nesting() == 0) of_torch::clear_cache();
  before_.apply();
}

}  // namespace lockstep
