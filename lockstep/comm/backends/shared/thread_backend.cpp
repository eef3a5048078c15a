#include "lockstep/comm/backends/shared/thread_backend.h"

#include <cstring>

#include "lockstep/comm/backends/segment/segment_plan.h"
#include "lockstep/comm/backends/shared/backoff.h"
#include "lockstep/comm/backends/shared/split.h"
#include "lockstep/os/cpu_share.h"

namespace lockstep {
namespace {

class Threads : public shared::Peers {
 public:
  bool alive(int) const override { return true; }
  std::string detail(int) const override { return {}; }
  bool stopped(int) const override { return false; }
  bool lend_private_memory() const override { return true; }
  bool read(int, std::uint64_t address, std::span<std::byte> to) const override {
    std::memcpy(to.data(), reinterpret_cast<const void*>(address),
                to.size());  // NOLINT(performance-no-int-to-ptr)
    return true;
  }
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
  const shared::SegmentPlan plan = shared::segment_plan(size, shared::memory_facts());
  for (int r = 0; r < size; ++r) membership.data.push_back(SharedMemory::create(plan.bytes));
  shared::cpus_of_ranks.store(usable_cpus({cpu_share()}), std::memory_order_relaxed);
  std::vector<ProcessGroup> groups;
  for (membership.rank = 0; membership.rank < size; ++membership.rank) {
    membership.own = std::make_shared<shared::RankMemory>(
        membership.data[static_cast<std::size_t>(membership.rank)], shared::explain(plan, 0));
    membership.trace = TraceMemory::create(membership.rank, size);
    groups.emplace_back(shared::make_engine(membership));
  }
  return groups;
}

}  // namespace lockstep
