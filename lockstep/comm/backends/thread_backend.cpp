#include "lockstep/comm/backends/thread_backend.h"

#include "lockstep/base/str.h"
#include "lockstep/comm/backends/shared_engine.h"

namespace lockstep {
namespace {

class Threads : public shared::Peers {
 public:
  bool alive(int) const override { return true; }
  std::string describe(int rank) const override { return str("rank ", rank); }
  bool stopped(int) const override { return false; }
};

}  // namespace

std::vector<ProcessGroup> make_thread_groups(int size, const GroupOptions& options) {
  shared::Membership membership;
  membership.size = size;
  membership.group_name = "world";
  membership.backend_name = "thread";
  membership.options = options;
  membership.peers = std::make_shared<Threads>();
  const std::size_t bytes = shared::Control::bytes(size);
  membership.control = SharedMemory::create(bytes);
  membership.control->reserve(0, bytes);
  const shared::Control control(membership.control->data(), size, /*fresh=*/true);
  for (int r = 0; r < size; ++r) membership.data.push_back(SharedMemory::create(physical_memory()));
  std::vector<ProcessGroup> groups;
  for (membership.rank = 0; membership.rank < size; ++membership.rank) {
    groups.emplace_back(std::make_shared<shared::SharedEngine>(membership));
  }
  return groups;
}

}  // namespace lockstep
