// rank_zero_first, rank_zero_only: work that one rank does before the rest, or alone.
//
//   // rank 0 downloads, then the others find the files
//   auto mnist = dist::rank_zero_first([] { return dist::find_mnist({.directory = "mnist"}); });
//   // one rank of each machine fills that machine's disk
//   dist::rank_zero_first([] { unpack("/local/disk"); }, {.per_machine = true});
//   // a line that is printed once
//   dist::rank_zero_only([] { std::printf("%d ranks\n", dist::get_world_size()); });
//
// Collective  rank_zero_first(): every rank of the world. The other ranks wait until rank 0 (or each
//             machine's first rank) has returned, then call the function themselves, all at once. They wait
//             at most for the job's timeout.
// Errors      an exception of the first rank is thrown on that rank. The other ranks do not call the function
//             and throw Aborted, which names that rank; the world stays usable. An exception on another rank
//             is thrown there only.
// Returns     the function's result.
// Alone       before init_process_group(), and with one rank, it only calls the function.
#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct RankZeroFirstOptions {
  bool per_machine = false;  // the ranks whose get_local_rank() is 0 come first, each on its machine
};

namespace detail {
void run_rank_zero_first(const std::function<void()>& run, const RankZeroFirstOptions& options);
bool is_rank_zero();
}  // namespace detail

template <typename Function> auto rank_zero_first(Function&& run, const RankZeroFirstOptions& options = {}) {
  using Result = std::decay_t<std::invoke_result_t<Function&>>;
  if constexpr (std::is_void_v<Result>) {
    detail::run_rank_zero_first([&] { run(); }, options);
  } else {
    std::optional<Result> result;
    detail::run_rank_zero_first([&] { result.emplace(run()); }, options);
    return std::move(*result);
  }
}

// Calls the function on rank 0 only. Does not communicate.
template <typename Function> void rank_zero_only(Function&& run) {
  if (detail::is_rank_zero()) run();
}

}  // namespace lockstep
