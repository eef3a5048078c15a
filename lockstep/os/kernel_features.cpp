#include "lockstep/os/kernel_features.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <string>

#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"
#include "lockstep/os/fd.h"

namespace lockstep {
namespace {

struct Description {
  std::string_view name;
  std::string_view instead;
};

constexpr std::array<Description, KERNEL_FEATURE_COUNT> DESCRIPTIONS = {{
    {"pidfd", "the state of a process in /proc"},
    {"seals", "an unsealed segment"},
    {"children", "a scan of the process table"},
    {"peer_memory", "copies through a common segment"},
    {"memfd", "no shared memory, tcp"},
}};

bool can_read_itself() {
  char from = 1;
  char to = 0;
  const iovec here{&to, 1};
  const iovec there{&from, 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 && to == from;
}

bool is_disabled(KernelFeature feature) {
  const std::string list = str(",", env("LOCKSTEP_DISABLE").value_or(""), ",");
  return list.find(str(",", name_of(feature), ",")) != std::string::npos;
}

bool probe(KernelFeature feature) {
  if (is_disabled(feature)) return false;
  switch (feature) {
    case KernelFeature::PIDFD: return Fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))).valid();
    case KernelFeature::SEALS: return true;
    case KernelFeature::CHILDREN: return access("/proc/thread-self/children", R_OK) == 0;
    case KernelFeature::PEER_MEMORY: return can_read_itself();
    case KernelFeature::MEMFD: return Fd(memfd_create("lockstep-probe", MFD_CLOEXEC)).valid();
  }
  return false;
}

}  // namespace

std::string_view name_of(KernelFeature feature) {
  return DESCRIPTIONS.at(static_cast<std::size_t>(feature)).name;
}

std::string_view instead_of(KernelFeature feature) {
  return DESCRIPTIONS.at(static_cast<std::size_t>(feature)).instead;
}

bool kernel_has(KernelFeature feature) {
  static const std::array<bool, KERNEL_FEATURE_COUNT> known = {
      probe(KernelFeature::PIDFD), probe(KernelFeature::SEALS), probe(KernelFeature::CHILDREN),
      probe(KernelFeature::PEER_MEMORY), probe(KernelFeature::MEMFD)};
  return known.at(static_cast<std::size_t>(feature));
}

std::string kernel_release() {
  utsname name{};
  return uname(&name) == 0 ? str(name.sysname, " ", name.release, " ", name.machine) : "unknown";
}

}  // namespace lockstep
