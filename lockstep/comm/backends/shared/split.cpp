#include "lockstep/comm/backends/shared/split.h"

#include <cerrno>
#include <limits>

#include "lockstep/base/str.h"
#include "lockstep/comm/group/split_agreement.h"

namespace lockstep::shared {
namespace {

constexpr std::uint64_t NO_ROOM = std::numeric_limits<std::uint64_t>::max();

Membership membership_in(const std::vector<int>& part, const Membership& parent, std::uint64_t offset,
                         int parent_rank) {
  Membership mine;
  const auto& memory = parent.data.at(static_cast<std::size_t>(part[0]));
  const std::size_t bytes = Control::bytes(static_cast<int>(part.size()));
  if (offset > memory->size() || bytes > memory->size() - offset)
    throw InternalError(str("shared memory: the control block at ", offset, " is outside"));
  mine.control = {memory, memory->data() + offset};
  mine.size = static_cast<int>(part.size());
  mine.backend_name = parent.backend_name;
  mine.own = parent.own;
  mine.peers = parent.peers;
  mine.trace = parent.trace;
  mine.job_ranks = parent.job_ranks;
  for (const int rank : part) {
    if (rank == parent_rank) mine.rank = static_cast<int>(mine.data.size());
    mine.data.push_back(parent.data.at(static_cast<std::size_t>(rank)));
    mine.world_ranks.push_back(parent.world_rank(rank));
  }
  return mine;
}

}  // namespace

std::shared_ptr<SharedEngine> make_engine(Membership membership) {
  const auto own = membership.own;
  auto engine = std::make_shared<SharedEngine>(std::move(membership));
  own->add_group(engine);
  return engine;
}

std::shared_ptr<Backend> split_group(SharedEngine& engine, const Membership& parent,
                                     const SplitRequest& split) {
  const std::vector<int>* mine = part_of(split.parts, engine.rank());
  const bool leads = mine != nullptr && mine->front() == engine.rank();
  std::uint64_t offset = 0;  // offset of the control block, from the first rank of each part
  if (leads) {
    try {
      offset = parent.own->make_control(static_cast<int>(mine->size()));
    } catch (const SystemError&) {
      offset = NO_ROOM;  // all ranks are told below
    }
  }
  // If this fails, the block stays, because a member may know its offset.
  const SplitAgreement all = agree_on_split(engine, split, offset);
  if (all.disagreement)
    engine.fail(mismatched(engine.rank(), *all.disagreement), std::string(name_of(split.callers)));
  for (const auto& part : split.parts) {
    if (all.numbers[static_cast<std::size_t>(part[0])] != NO_ROOM) continue;
    if (leads && offset != NO_ROOM) parent.own->discard_control(offset);
    throw SystemError(str(describe_split(split), ": rank ", part[0], " has no shared memory for it"), ENOMEM);
  }
  if (mine == nullptr) return nullptr;
  Membership membership =
      membership_in(*mine, parent, all.numbers[static_cast<std::size_t>(mine->front())], engine.rank());
  membership.group_name = split.name;
  membership.options = split.options;
  return make_engine(std::move(membership));
}

}  // namespace lockstep::shared
