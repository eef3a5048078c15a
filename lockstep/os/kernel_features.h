// Which optional kernel features may be used: those the running kernel has, less those named in
// LOCKSTEP_DISABLE, so that tests run every fallback on any kernel (clusters run 4.18).
//
//   if (kernel_has(KernelFeature::PIDFD)) ...
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

enum class KernelFeature {
  PIDFD,  // Linux 5.3: a descriptor that tells when a process ends; else /proc/PID/stat with its start time
  SEALS,  // Linux 3.17 memfd seals; else an unsealed segment
  CHILDREN,     // the list of a process's children in /proc; else a scan of all of /proc
  PEER_MEMORY,  // process_vm_readv, which a container's filter may forbid; else copies through a common
                // segment
  MEMFD,  // memory files, which a container's filter may forbid; else no memory is shared: one rank alone,
          // and tcp
};
inline constexpr int KERNEL_FEATURE_COUNT = 5;

bool kernel_has(KernelFeature feature);
std::string_view name_of(KernelFeature feature);
std::string_view instead_of(KernelFeature feature);  // what is done without it
std::string kernel_release();                        // "Linux 6.1.0-18-amd64 x86_64"

}  // namespace lockstep
