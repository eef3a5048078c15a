// Work that one rank does for all: first, or alone.
//
//   // rank 0 downloads, then the others find the files
//   auto mnist = dist::rank_zero_first([] { return dist::find_mnist({.directory = "mnist"}); });
//   // one rank of each machine fills that machine's disk
//   dist::rank_zero_first([] { unpack("/local/disk"); }, {.per_machine = true});
//   // a line that is printed once
//   dist::rank_zero_only([] { std::printf("%d ranks\n", dist::get_world_size()); });
//
// Collective  rank_zero_first(): every rank of the world. The others wait until rank 0 (or each machine's
//             first rank) has returned, then run it themselves, all at once. They wait no longer than the
//             job's timeout.
// Errors      an exception of the first rank is that rank's, and the others throw Aborted, which names it,
//             instead of running; the world stays usable. An exception on another rank is that rank's alone.
// Returns     what the function returns.
// Alone       before init_process_group() and with one rank the function is simply called.
#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct RankZeroFirstOptions {
  bool per_machine = false;  // the ranks whose get_local_rank() is 0 come first, each for its machine
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

// Calls the function on rank 0 and nowhere else. Communicates nothing.
template <typename Function> void rank_zero_only(Function&& run) {
  if (detail::is_rank_zero()) run();
}

}  // namespace lockstep
