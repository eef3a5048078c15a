// Which optional kernel features may be used: those the running kernel has, less those named in LOCKSTEP_DISABLE, so that
// tests run every fallback on any kernel (clusters run 4.18).
//
//   if (kernel_has(KernelFeature::PIDFD)) ...
#pragma once

#include <string_view>

namespace lockstep {

enum class KernelFeature {
  PIDFD,  // Linux 5.3: a descriptor that tells when a process ends; else /proc/PID/stat with its start time
  SEALS,  // Linux 3.17 memfd seals; else an unsealed segment
};

bool kernel_has(KernelFeature feature);
std::string_view name_of(KernelFeature feature);

}  // namespace lockstep
