#include "lockstep/comm/backends/shared/membership.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::shared {

std::vector<int> Membership::all_job_ranks() const {
  if (world_ranks.empty()) return job_ranks;
  std::vector<int> all;
  for (int r = 0; r < size; ++r) all.push_back(job_rank(r));
  return all;
}

GroupPlace Membership::place() const {
  return {.group = group_name, .rank = rank, .size = size, .world_rank = job_rank(rank)};
}

std::byte* Membership::block(int of, std::uint64_t offset, std::size_t bytes) const {
  const auto& memory = data.at(static_cast<std::size_t>(of));
  if (offset > memory->size() || bytes > memory->size() - offset) {
    throw InternalError(
        str("shared memory of rank ", of, ": block of ", bytes, " bytes at ", offset, " is outside"));
  }
  return memory->data() + offset;
}

}  // namespace lockstep::shared
