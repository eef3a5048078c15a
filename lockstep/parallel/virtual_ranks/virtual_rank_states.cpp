#include "lockstep/parallel/virtual_ranks/virtual_rank_states.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/parallel/virtual_ranks/virtual_rank_home.h"

namespace lockstep {
namespace {

constexpr const char* RANDOM_STATE = "random_state";
constexpr const char* THREADS = "threads";

[[noreturn]] void refuse(const std::string& reason) {
  throw InvalidArgument("virtual rank states: " + reason);
}

VirtualRankHome& home_between_rounds() {
  VirtualRankHome& home = virtual_rank_home();
  if (home.is_in_round) refuse("saved and loaded between loops over virtual_ranks(), not within one");
  return home;
}

std::string prefix_of(std::size_t member) { return lockstep::str("model.", member, '.'); }

const VirtualRankState& state_of(const std::vector<VirtualRankState>& states, int virtual_rank) {
  const auto found = std::find_if(states.begin(), states.end(),
                                  [&](const auto& state) { return state.virtual_rank == virtual_rank; });
  if (found == states.end())
    refuse(lockstep::str("virtual rank ", virtual_rank, " is this process's, and none of the ", states.size(),
                         " states is its own; give those of all virtual ranks"));
  return *found;
}

// The state with its members' tensors, with the names and shapes of each member's own state.
struct Parts {
  at::Tensor random_state;
  std::vector<NamedTensors> members;
};

Parts parts_of(const VirtualRankState& state,
               const std::vector<std::shared_ptr<VirtualRankMember>>& members) {
  Parts parts;
  std::size_t known = 0;
  const auto take = [&](const std::string& name) {
    for (const auto& [other, tensor] : state.tensors) {
      if (other == name) return ++known, tensor;
    }
    return at::Tensor();
  };
  parts.random_state = take(RANDOM_STATE);
  take(THREADS);
  for (std::size_t i = 0; i < members.size(); ++i) {
    NamedTensors& own = parts.members.emplace_back();
    for (const auto& [name, like] : members[i]->state(state.virtual_rank)) {
      const at::Tensor tensor = take(prefix_of(i) + name);
      if (!tensor.defined() || tensor.sizes() != like.sizes()) {
        refuse(lockstep::str("virtual rank ", state.virtual_rank, ", \"", prefix_of(i), printable(name),
                             tensor.defined() ? "\" has another shape than the model's buffer"
                                              : "\" is missing; wrap the same models in the same order"));
      }
      own.emplace_back(name, tensor);
    }
  }
  if (known == state.tensors.size()) return parts;
  refuse(lockstep::str("virtual rank ", state.virtual_rank, " has ", state.tensors.size() - known,
                       " tensors that no model here has; wrap the same models in the same order"));
}

void compare_threads(const VirtualRankState& state) {
  for (const auto& [name, tensor] : state.tensors) {
    if (name != THREADS || tensor.item<std::int64_t>() == at::get_num_threads()) continue;
    log(LogLevel::WARNING,
        lockstep::str("virtual ranks go on with ", at::get_num_threads(),
                      " threads, and their state was made with ", tensor.item<std::int64_t>(),
                      ": sums are correct, but not to the same bits; set OMP_NUM_THREADS to keep them"));
  }
}

}  // namespace

std::vector<VirtualRankState> virtual_rank_states() {
  if (!has_virtual_ranks()) return {};
  VirtualRankHome& home = home_between_rounds();
  const auto members = home.live_members();
  std::vector<VirtualRankState> states;
  for (const int v : local_virtual_ranks()) {
    VirtualRankState& state = states.emplace_back();
    state.virtual_rank = v;
    if (home.streams.has(v)) state.tensors.emplace_back(RANDOM_STATE, home.streams.state(v));
    state.tensors.emplace_back(THREADS, at::full({}, at::get_num_threads(), at::kLong));
    for (std::size_t i = 0; i < members.size(); ++i) {
      for (auto& [name, tensor] : members[i]->state(v))
        state.tensors.emplace_back(prefix_of(i) + name, tensor);
    }
  }
  return states;
}

void load_virtual_rank_states(const std::vector<VirtualRankState>& states) {
  if (!has_virtual_ranks()) {
    if (states.empty()) return;
    refuse(lockstep::str(states.size(),
                         " virtual ranks have a state, and this job has no virtual ranks; start it with ",
                         "--virtual-ranks"));
  }
  VirtualRankHome& home = home_between_rounds();
  const auto members = home.live_members();
  std::vector<std::pair<int, Parts>> all;
  for (const int v : local_virtual_ranks()) all.emplace_back(v, parts_of(state_of(states, v), members));
  compare_threads(state_of(states, all.front().first));
  home.has_begun = false;
  for (const auto& [v, parts] : all) {
    if (parts.random_state.defined()) home.streams.load(v, parts.random_state);
    for (std::size_t i = 0; i < members.size(); ++i) members[i]->load_state(v, parts.members[i]);
  }
}

}  // namespace lockstep
