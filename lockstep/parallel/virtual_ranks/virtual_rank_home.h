// VirtualRankHome: the data that a process keeps about its virtual ranks between loops: their random numbers,
// and the objects that have a state for each of them. There is one per process, new with each job.
// virtual_ranks.h and virtual_rank_states.h use it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/parallel/virtual_ranks/random_streams.h"
#include "lockstep/parallel/virtual_ranks/virtual_rank_member.h"

namespace lockstep {

struct VirtualRankHome {
  std::uint64_t job = 0;  // detail::virtual_job_number()
  RandomStreams streams;
  std::uint64_t seed = 0;  // of seeded streams
  bool has_begun = false;  // processes have compared their random numbers and threads
  bool is_in_round = false;
  std::vector<std::weak_ptr<VirtualRankMember>> members;  // in the order in which they were made

  std::vector<std::shared_ptr<VirtualRankMember>> live_members();
};

VirtualRankHome& virtual_rank_home();

}  // namespace lockstep
