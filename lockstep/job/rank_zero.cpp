#include "lockstep/job/rank_zero.h"

#include <cstdint>
#include <exception>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/job/job.h"

namespace lockstep {
namespace {

// Waits until all first ranks have run. Returns the lowest first rank that failed.
std::optional<int> after_first_ranks(bool has_failed) {
  const ProcessGroup& all = world();
  std::int32_t said = has_failed ? all.size() - all.rank() : 0;
  const Acting acting(Purpose::RANK_ZERO_FIRST);
  comm::all_reduce(all, std::span(&said, 1), ReduceOp::MAX);
  return said == 0 ? std::nullopt : std::optional(all.size() - said);
}

void refuse_after(std::optional<int> failed) {
  if (!failed) return;
  throw Aborted(str("rank_zero_first, rank ", get_rank(), " of ", get_world_size(), ": rank ", *failed,
                    " came first and failed, so nothing was run here; its error says why"));
}

}  // namespace

void detail::run_rank_zero_first(const std::function<void()>& run, const RankZeroFirstOptions& options) {
  if (!is_initialized() || get_world_size() == 1) return run();
  const bool is_first = (options.per_machine ? get_local_rank() : get_rank()) == 0;
  if (!is_first) {
    refuse_after(after_first_ranks(false));
    return run();
  }
  std::exception_ptr mine;
  try {
    run();
  } catch (...) {  // the other ranks wait for this one, so they learn of the failure before the caller does
    mine = std::current_exception();
  }
  const auto failed = after_first_ranks(mine != nullptr);
  if (mine) std::rethrow_exception(mine);
  refuse_after(failed);
}

bool detail::is_rank_zero() { return !is_initialized() || get_rank() == 0; }

}  // namespace lockstep
