// The patience of a caller with a deadline, on both sides of the module's interface (mpi/module.h).
#pragma once

#include <chrono>

#include "lockstep/base/deadline.h"
#include "lockstep/base/naps.h"
#include "lockstep/comm/backends/mpi/module.h"

namespace lockstep::mpi {

// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): nothing is derived from it
class UntilDeadline final : public Patience {
 public:
  explicit UntilDeadline(Deadline deadline) : deadline_(deadline) {}
  bool rest() override {
    constexpr std::chrono::microseconds REST{200};
    naps_.now();
    if (deadline_.expired()) return false;
    naps_.sleep(REST);
    return true;
  }

 private:
  const Deadline deadline_;
  Naps naps_;
};

}  // namespace lockstep::mpi
