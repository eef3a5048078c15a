// GroupOfContexts: the contexts of all ranks of a group over shared memory, in one thread, for a test that
// plays all ranks itself.
//
//   GroupOfContexts group(2);
//   Contribution contribution(group[0], 1);       // of rank 0 to collective 1
//   Sources sources(group[1], 1);                 // as rank 1 sees it
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "lockstep/comm/backends/shared/context.h"
#include "testing/fresh_control.h"

namespace lockstep::testing {

// Ranks whose memory the test can read. A rank in `dead` is gone.
class ReadablePeers : public shared::Peers {
 public:
  bool alive(int rank) const override { return rank != dead; }
  std::string detail(int) const override { return {}; }
  bool stopped(int) const override { return false; }
  bool lend_private_memory() const override { return true; }
  bool read(int rank, std::uint64_t address, std::span<std::byte> to) const override {
    if (!alive(rank)) return false;
    const auto* from = reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
    std::memcpy(to.data(), from, to.size());
    return true;
  }

  int dead = -1;
};

class GroupOfContexts {
 public:
  explicit GroupOfContexts(int size) : memory_(size) {
    shared::Membership membership;
    membership.size = size;
    membership.group_name = "world";
    membership.backend_name = "thread";
    membership.control = {memory_.memory, memory_.memory->data()};
    membership.peers = peers;
    for (int r = 0; r < size; ++r) membership.data.push_back(SharedMemory::create(std::size_t{64} << 20U));
    for (int r = 0; r < size; ++r) {
      membership.rank = r;
      membership.own = std::make_shared<shared::RankMemory>(membership.data[static_cast<std::size_t>(r)]);
      membership.trace = TraceMemory::create(r, size);
      contexts_.push_back(std::make_unique<shared::Context>(membership));
    }
  }

  shared::Context& operator[](int rank) { return *contexts_[static_cast<std::size_t>(rank)]; }

  const std::shared_ptr<ReadablePeers> peers = std::make_shared<ReadablePeers>();

 private:
  FreshControl memory_;
  std::vector<std::unique_ptr<shared::Context>> contexts_;
};

}  // namespace lockstep::testing
