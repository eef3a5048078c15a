// Settings: how names are matched and fused, from the variables HOROVOD_*.
//
//   const Settings settings = agreed_settings(group, settings_of_environment());
//
// The times and sizes of rank 0 count on every rank, because they decide what runs together.
// Throws InvalidArgument for a variable that is not a number.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC named {

struct Settings {
  std::size_t fusion_threshold = std::size_t{128} << 20U;           // bytes; 0: nothing is fused
  std::chrono::microseconds cycle_time{2500};                       // names of so long a time run together
  std::size_t cache_capacity = 1024;                                // names; 0: no cache
  std::chrono::milliseconds stall_check{std::chrono::seconds(60)};  // 0: never
  std::chrono::milliseconds stall_shutdown{0};                      // 0: never
  std::string timeline = {};                                        // file; empty: none
  bool timeline_marks_cycles = false;
};

Settings settings_of_environment();
// Logs a warning with the variables HOROVOD_* that are set and have no counterpart, if there are any.
void name_variables_without_counterpart();
// Collective. The timeline stays this rank's own.
Settings agreed_settings(const ProcessGroup& group, Settings own);

}  // namespace named
}  // namespace lockstep
