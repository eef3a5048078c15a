// The optional kernel features that may be used: those of the running kernel, without those in
// LOCKSTEP_DISABLE. So tests can run every fallback on any kernel (some clusters run Linux 4.18).
//
//   if (kernel_has(KernelFeature::PIDFD)) ...
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

enum class KernelFeature {
  PIDFD,     // Linux 5.3: a descriptor that reports the end of a process; else /proc/PID/stat with its start
             // time
  SEALS,     // Linux 3.17 memfd seals; else an unsealed segment
  CHILDREN,  // the list of a process's children in /proc; else a scan of all of /proc
  PEER_MEMORY,  // process_vm_readv, which a container's filter may forbid; else copies through a common
                // segment
  MEMFD,  // memory files, which a container's filter may forbid; else no shared memory: a job of one rank, or
          // backend tcp
};
inline constexpr int KERNEL_FEATURE_COUNT = 5;

bool kernel_has(KernelFeature feature);
std::string_view name_of(KernelFeature feature);
std::string_view instead_of(KernelFeature feature);  // its replacement
std::string kernel_release();                        // "Linux 6.1.0-18-amd64 x86_64"

}  // namespace lockstep
