#include "lockstep/job/virtual_ranks.h"

#include <atomic>
#include <mutex>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"

namespace lockstep {
namespace {

constexpr int MOST_VIRTUAL_RANKS = 1 << 16;  // the largest number of inputs that the kernels add in one tree
constexpr int NOBODY = -1;

struct VirtualJob {
  std::atomic<bool> exists = false;
  std::atomic<int> turn = NOBODY;
  std::atomic<std::uint64_t> number = 1;
  std::mutex mutex;
  // guarded by mutex
  VirtualRankPlan plan;
};

VirtualJob& virtual_job() {
  static auto* const instance = new VirtualJob;  // outlives static destructors, like the job
  return *instance;
}

}  // namespace

bool has_virtual_ranks() { return virtual_job().exists.load(std::memory_order_relaxed); }

int virtual_world_size() {
  const int processes = get_world_size();
  if (!has_virtual_ranks()) return processes;
  const std::lock_guard lock(virtual_job().mutex);
  return virtual_job().plan.virtual_ranks;
}

std::vector<int> local_virtual_ranks() {
  const int rank = get_rank();
  if (!has_virtual_ranks()) return {rank};
  const VirtualShare share = current_virtual_rank_plan().shares[static_cast<std::size_t>(rank)];
  std::vector<int> ranks;
  for (int v = share.first; v <= share.last(); ++v) ranks.push_back(v);
  return ranks;
}

int get_virtual_rank() {
  const int rank = get_rank();
  if (!has_virtual_ranks()) return rank;
  if (const auto turn = current_virtual_rank()) return *turn;
  throw InvalidArgument(str("get_virtual_rank() on process ", rank,
                            " outside of a virtual rank's turn; call it in a loop over virtual_ranks()"));
}

std::optional<int> current_virtual_rank() {
  const int turn = virtual_job().turn.load(std::memory_order_relaxed);
  return turn == NOBODY ? std::nullopt : std::optional(turn);
}

VirtualRankPlan current_virtual_rank_plan() {
  if (!has_virtual_ranks())
    throw InvalidArgument("this job has no virtual ranks; ask for them in init_process_group()");
  const std::lock_guard lock(virtual_job().mutex);
  return virtual_job().plan;
}

int wanted_virtual_ranks(const std::optional<int>& asked, int processes) {
  const bool is_asked = asked.has_value();
  const int wanted =
      is_asked ? *asked
               : static_cast<int>(env_number("LOCKSTEP_VIRTUAL_RANKS", 1, MOST_VIRTUAL_RANKS).value_or(0));
  if (!is_asked && wanted == 0) return 0;
  if (wanted < 1 || wanted > MOST_VIRTUAL_RANKS)
    throw InvalidArgument(
        str("init_process_group: virtual_ranks is ", wanted, ", expected 1 to ", MOST_VIRTUAL_RANKS));
  if (wanted >= processes) return wanted;
  throw InvalidArgument(str("init_process_group: ", wanted, " virtual ranks (",
                            is_asked ? "InitOptions::virtual_ranks" : "LOCKSTEP_VIRTUAL_RANKS",
                            ") are fewer than the ", processes, " processes; start at most ", wanted,
                            " processes, or ask for more virtual ranks"));
}

void detail::set_virtual_ranks(int virtual_ranks, int processes) {
  VirtualJob& job = virtual_job();
  const std::lock_guard lock(job.mutex);
  job.plan = virtual_ranks > 0 ? virtual_rank_plan(virtual_ranks, processes) : VirtualRankPlan();
  job.turn = NOBODY;
  ++job.number;
  job.exists = virtual_ranks > 0;
}

std::uint64_t detail::virtual_job_number() { return virtual_job().number; }

void detail::set_virtual_turn(std::optional<int> virtual_rank) {
  virtual_job().turn = virtual_rank.value_or(NOBODY);
}

}  // namespace lockstep
