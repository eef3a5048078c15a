// Operators of torch by which Python makes groups: torch.ops.lockstep.make_backend and leave_all. They take
// c10d's objects in the form that torch's operators do (ProcessGroup.boxed()). So this library needs neither
// Python's headers nor pybind11, and one object serves all versions of Python.
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/compat/c10d/backend.h"
#include "lockstep/compat/c10d/ended_tensors.h"
#include "lockstep/compat/c10d/failure.h"
#include "lockstep/compat/c10d/meet.h"
#include "lockstep/compat/c10d/open_backends.h"

namespace lockstep::compat::torch_backend {
namespace {

using std::chrono::milliseconds;

struct Texts {
  const c10::Dict<std::string, std::string>& all;
  std::string operator[](const char* key) const { return all.contains(key) ? all.at(key) : std::string(); }
};

void log_by_torch() {
  if (has_log_sink()) return;
  set_log_sink([](LogLevel, const std::string& line) { TORCH_WARN("lockstep: ", line); });
}

// Makes the group, and sets its backend for the CPU. `ranks` are those of the default group, empty for the
// default group itself. `texts` has: name, prefix, backend, secret, local_address, called (the backend's name
// in torch).
void make_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const c10::List<std::int64_t>& ranks,
                  bool is_job, std::int64_t timeout_ms, std::int64_t warn_after_ms,
                  const c10::Dict<std::string, std::string>& texts) {
  take_over_ended_tensors();
  log_by_torch();
  const Texts text = {texts};
  MeetOptions options;
  options.store = group->getStore();
  options.rank = group->getRank();
  options.size = group->getSize();
  options.name = text["name"];
  options.prefix = text["prefix"];
  for (const std::int64_t rank : ranks) options.ranks.push_back(static_cast<int>(rank));
  options.is_job = is_job;
  options.backend = text["backend"];
  options.secret = text["secret"];
  options.local_address = text["local_address"];
  options.timeout = milliseconds(timeout_ms);
  options.warn_after = milliseconds(warn_after_ms);
  try {
    auto backend = c10::make_intrusive<GroupBackend>(meet(options), text["called"], options.timeout);
    if (ranks.empty()) set_default_backend(backend);
    group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, std::move(backend));
  } catch (...) {
    throw_as_torch(options.timeout);
  }
}

// Whether groups of some ranks are made over a default group of ours, so that they need no store.
bool has_default_group() { return default_backend() != nullptr; }

}  // namespace
}  // namespace lockstep::compat::torch_backend

TORCH_LIBRARY(lockstep, library) {
  using namespace lockstep::compat::torch_backend;  // NOLINT(google-build-using-namespace)
  library.def("make_backend", &make_backend);
  library.def("has_default_group", &has_default_group);
  library.def("leave_all", &leave_all);
}
