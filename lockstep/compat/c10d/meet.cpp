#include "lockstep/compat/c10d/meet.h"

#include <memory>
#include <utility>

#include "lockstep/compat/c10d/backend.h"
#include "lockstep/compat/c10d/open_backends.h"
#include "lockstep/compat/c10d/store_adapter.h"
#include "lockstep/job/connect.h"
#include "lockstep/job/job.h"

namespace lockstep::compat::torch_backend {
namespace {

ProcessGroup over_default_group(const GroupBackend& parent, const MeetOptions& options) {
  auto made = parent.group().backend().split_over(
      options.ranks, options.name, {.timeout = options.timeout, .warn_after = options.warn_after});
  std::vector<int> global;
  for (const int rank : options.ranks)
    global.push_back(parent.group().ranks().at(static_cast<std::size_t>(rank)));
  return {std::move(made), std::move(global)};
}

}  // namespace

ProcessGroup meet(const MeetOptions& options) {
  if (!options.ranks.empty()) {
    if (const auto parent = default_backend()) return over_default_group(*parent, options);
  } else if (options.is_job) {
    return world();
  }
  ConnectOptions connecting;
  connecting.name = options.name;
  connecting.backend = options.backend;
  connecting.timeout = options.timeout;
  connecting.warn_after = options.warn_after;
  if (!options.secret.empty()) connecting.secret = options.secret;
  connecting.local_address = options.local_address;
  return connect(std::make_shared<StoreAdapter>(options.store, options.prefix), options.rank, options.size,
                 connecting);
}

}  // namespace lockstep::compat::torch_backend
