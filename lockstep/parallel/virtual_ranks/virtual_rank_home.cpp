#include "lockstep/parallel/virtual_ranks/virtual_rank_home.h"

#include <utility>

#include "lockstep/job/virtual_ranks.h"

namespace lockstep {

VirtualRankHome& virtual_rank_home() {
  static VirtualRankHome* const instance = new VirtualRankHome;  // outlives static destructors
  if (instance->job != detail::virtual_job_number()) {
    instance->job = detail::virtual_job_number();
    instance->streams.clear();
    instance->has_begun = false;
  }
  return *instance;
}

std::vector<std::shared_ptr<VirtualRankMember>> VirtualRankHome::live_members() {
  std::vector<std::shared_ptr<VirtualRankMember>> live;
  std::erase_if(members, [](const auto& member) { return member.expired(); });
  for (const auto& member : members) {
    if (auto alive = member.lock()) live.push_back(std::move(alive));
  }
  return live;
}

void add_virtual_rank_member(const std::shared_ptr<VirtualRankMember>& member) {
  virtual_rank_home().members.push_back(member);
}

}  // namespace lockstep
