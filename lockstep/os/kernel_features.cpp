#include "lockstep/os/kernel_features.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string>

#include "lockstep/base/environment.h"

namespace lockstep {
namespace {

bool probe(KernelFeature feature) {
  if (("," + env("LOCKSTEP_DISABLE").value_or("") + ",").find("," + std::string(name_of(feature)) + ",") !=
      std::string::npos) {
    return false;
  }
  if (feature != KernelFeature::PIDFD) return true;
  const long fd = syscall(SYS_pidfd_open, getpid(), 0);
  if (fd >= 0) close(static_cast<int>(fd));
  return fd >= 0;
}

}  // namespace

std::string_view name_of(KernelFeature feature) {
  return feature == KernelFeature::PIDFD ? "pidfd" : "seals";
}

bool kernel_has(KernelFeature feature) {
  static const std::array<bool, 2> known = {probe(KernelFeature::PIDFD), probe(KernelFeature::SEALS)};
  return known.at(static_cast<std::size_t>(feature));
}

}  // namespace lockstep
