#include "lockstep/data/pin_memory.h"

#include <ATen/Context.h>

#include <atomic>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"

namespace lockstep {

std::string why_not_pinned() {
  return at::hasCUDA() ? "" : "this process has no CUDA device, or a libtorch without CUDA";
}

std::string begin_to_pin(bool is_pinnable) {
  if (!is_pinnable)
    throw InvalidArgument(
        "make_data_loader: pin_memory is set, and the data set's batches are of a type without a member "
        "pin_memory() that returns a pinned copy");
  static std::atomic<bool> has_warned = false;
  std::string reason = why_not_pinned();
  if (!reason.empty() && !has_warned.exchange(true))
    log(LogLevel::WARNING, str("make_data_loader: pin_memory does nothing: ", reason));
  return reason;
}

}  // namespace lockstep
