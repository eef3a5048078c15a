// Virtual ranks: a job of V ranks that runs on any number N of processes up to V, with the same bits. Each
// process trains its share of the V ranks in turn, and gradients are added in one tree over V.
//
//   lockstep run -n 3 --virtual-ranks 4 ./train
//
//   init_process_group("auto", {.virtual_ranks = 4});           // the same in the program
//   get_world_size();                                           // 3: processes
//   virtual_world_size();                                       // 4
//   local_virtual_ranks();                                      // {0, 1} on process 0
//
// The loop over the virtual ranks of this process is virtual_ranks()
// (parallel/virtual_ranks/virtual_ranks.h); docs/virtual_ranks.md is the guide.
//
// Without  virtual ranks each process is one: virtual_world_size() is get_world_size(), and
//          local_virtual_ranks() is {get_rank()}.
// Throws   InvalidArgument before init_process_group().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/job/virtual_rank_plan.h"

namespace LOCKSTEP_PUBLIC lockstep {

// Whether init_process_group() was asked for virtual ranks, even if there are as many as processes.
bool has_virtual_ranks();

int virtual_world_size();
// The virtual ranks that this process runs, in the order of their turns.
std::vector<int> local_virtual_ranks();
// The virtual rank whose turn it is. With virtual ranks, throws InvalidArgument outside of a turn.
int get_virtual_rank();
// Empty outside of a turn, and without virtual ranks.
std::optional<int> current_virtual_rank();

// The plan of this job's virtual ranks. Throws InvalidArgument without virtual ranks.
VirtualRankPlan current_virtual_rank_plan();

// The requested number, or $LOCKSTEP_VIRTUAL_RANKS, or 0. Throws InvalidArgument if it is smaller than
// `processes`.
int wanted_virtual_ranks(const std::optional<int>& asked, int processes);

namespace detail {
void set_virtual_ranks(int virtual_ranks, int processes);  // 0 if there are none
void set_virtual_turn(std::optional<int> virtual_rank);
std::uint64_t virtual_job_number();  // differs for each job of this process
}  // namespace detail

}  // namespace lockstep
