#include "lockstep/parallel/virtual_ranks/virtual_ranks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text_hash.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/job/job.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/parallel/virtual_ranks/rank_seed.h"
#include "lockstep/parallel/virtual_ranks/virtual_rank_home.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

// Facts that show in the bits, and must be equal in all processes before the first turn.
struct Beginnings {
  std::int64_t threads = 0;
  std::int64_t origin = 0;
  std::int64_t numbers = 0;  // hash of the generator from which streams are copied, or the seed
};

Beginnings own_beginnings(const VirtualRankHome& home) {
  Beginnings mine;
  mine.threads = at::get_num_threads();
  mine.origin = static_cast<std::int64_t>(home.streams.origin());
  if (home.streams.origin() == RandomStreams::Origin::SEEDED) {
    mine.numbers = static_cast<std::int64_t>(home.seed);
  } else if (home.streams.origin() == RandomStreams::Origin::COPIED) {
    const at::Tensor state = RandomStreams::default_state();
    const std::string_view bytes(static_cast<const char*>(state.const_data_ptr()), state.nbytes());
    mine.numbers = static_cast<std::int64_t>(text_hash(bytes));
  }
  return mine;
}

std::vector<Beginnings> all_beginnings(const Beginnings& own) {
  const at::Tensor mine = at::empty({3}, at::kLong);
  const std::array<std::int64_t, 3> values = {own.threads, own.origin, own.numbers};
  std::copy(values.begin(), values.end(), mine.mutable_data_ptr<std::int64_t>());
  std::vector<at::Tensor> gathered;
  for (int process = 0; process < get_world_size(); ++process) gathered.push_back(at::empty_like(mine));
  const Acting acting(Purpose::MODEL_COMPARISON, {}, comparison_mark("virtual_ranks()"));
  all_gather(gathered, mine);
  std::vector<Beginnings> all;
  for (const at::Tensor& one : gathered) {
    const auto* const from = one.const_data_ptr<std::int64_t>();
    all.push_back({.threads = from[0], .origin = from[1], .numbers = from[2]});
  }
  return all;
}

void check_alike(const std::vector<Beginnings>& all) {
  for (std::size_t process = 1; process < all.size(); ++process) {
    if (all[process].threads != all[0].threads) {
      throw Mismatch(
          str("virtual_ranks(): process 0 computes with ", all[0].threads, " threads, process ", process,
              " with ", all[process].threads,
              ", and sums depend on it; call at::set_num_threads(), or set OMP_NUM_THREADS, to the "
              "same number everywhere"));
    }
    if (all[process].origin != all[0].origin || all[process].numbers != all[0].numbers) {
      throw Mismatch(
          str("virtual_ranks(): processes 0 and ", process,
              " would begin with different random numbers, so results would depend on the number of "
              "processes; call seed_virtual_ranks(seed) on all, in place of no seed or one by "
              "get_rank()"));
    }
  }
}

}  // namespace

void seed_virtual_ranks(std::uint64_t seed) {
  if (!has_virtual_ranks()) return static_cast<void>(at::manual_seed(rank_seed(seed, get_rank())));
  if (current_virtual_rank()) {
    throw InvalidArgument(str("seed_virtual_ranks() in the turn of virtual rank ", *current_virtual_rank(),
                              "; call it outside of the loop"));
  }
  VirtualRankHome& home = virtual_rank_home();
  home.seed = seed;
  home.has_begun = false;
  for (const int v : local_virtual_ranks()) home.streams.seed(v, rank_seed(seed, v));
  at::manual_seed(rank_seed(seed, 0));
}

namespace detail {

std::size_t local_virtual_rank_count() { return has_virtual_ranks() ? local_virtual_ranks().size() : 1; }

void check_loader(std::size_t replicas) {
  if (replicas == local_virtual_rank_count()) return;
  throw InvalidArgument(
      str("virtual_steps(): the loader has batches for ", replicas, " of the ", local_virtual_rank_count(),
          " virtual ranks of this process; give its "
          "DistributedSampler no rank, and make it outside of the loop over virtual ranks"));
}

VirtualRound::VirtualRound() : ranks_(local_virtual_ranks()), is_virtual_(has_virtual_ranks()) {
  if (!is_virtual_) return;
  VirtualRankHome& home = virtual_rank_home();
  if (home.is_in_round)
    throw InvalidArgument("virtual_ranks() within a loop over virtual_ranks(); end the first one before");
  if (!home.has_begun) check_alike(all_beginnings(own_beginnings(home)));
  home.has_begun = true;
  for (const int v : ranks_) home.streams.begin(v);
  members_ = home.live_members();
  for (const auto& member : members_) member->begin_round();
  home.is_in_round = true;
  try {
    begin_turn();
  } catch (...) {
    leave();
    throw;
  }
}

VirtualRound::~VirtualRound() {
  if (is_virtual_ && !is_over()) leave();
}

void VirtualRound::leave() noexcept {
  VirtualRankHome& home = virtual_rank_home();
  if (const auto turn = current_virtual_rank()) home.streams.leave(*turn);
  set_virtual_turn(std::nullopt);
  for (const auto& member : members_) member->leave_round();
  home.is_in_round = false;
}

void VirtualRound::begin_turn() {
  if (!is_virtual_ || is_over()) return;
  virtual_rank_home().streams.enter(virtual_rank());
  set_virtual_turn(virtual_rank());
  for (const auto& member : members_) member->begin_turn(virtual_rank());
}

void VirtualRound::end_turn() {
  if (is_virtual_) {
    for (const auto& member : members_) member->end_turn(virtual_rank());
    virtual_rank_home().streams.leave(virtual_rank());
    set_virtual_turn(std::nullopt);
  }
  ++turn_;
  if (!is_virtual_ || !is_over()) return;
  virtual_rank_home().is_in_round = false;
  for (const auto& member : members_) member->end_round();
}

}  // namespace detail
}  // namespace lockstep
