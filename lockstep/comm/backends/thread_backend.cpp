#include "lockstep/comm/backends/thread_backend.h"

#include "lockstep/comm/backends/shared_split.h"

namespace lockstep {
namespace {

class Threads : public shared::Peers {
 public:
  bool alive(int) const override { return true; }
  std::string detail(int) const override { return {}; }
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
  const auto control = SharedMemory::create(bytes);
  control->reserve(0, bytes);
  const shared::Control fresh(control->data(), size, /*fresh=*/true);
  membership.control = {control, control->data()};
  for (int r = 0; r < size; ++r) membership.data.push_back(SharedMemory::create(physical_memory()));
  std::vector<ProcessGroup> groups;
  for (membership.rank = 0; membership.rank < size; ++membership.rank) {
    membership.own =
        std::make_shared<shared::RankMemory>(membership.data[static_cast<std::size_t>(membership.rank)]);
    groups.emplace_back(shared::make_engine(membership));
  }
  return groups;
}

}  // namespace lockstep
