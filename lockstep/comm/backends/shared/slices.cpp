#include "lockstep/comm/backends/shared/slices.h"

#include <algorithm>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/round_up.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t MIN_SLICE = std::size_t{32} << 10U;
constexpr std::size_t MAX_SLICE = std::size_t{256} << 10U;
constexpr std::size_t SLICES_PER_RANK = 8;

}  // namespace

std::size_t SlicePlan::region_begin(int rank) const {
  return std::min(total, static_cast<std::size_t>(rank) * region);
}

std::size_t SlicePlan::slices_of(int rank) const {
  return (region_begin(rank + 1) - region_begin(rank) + slice - 1) / slice;
}

SlicePlan slice_plan(std::size_t total, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  const std::size_t region = round_up((total + count - 1) / count, LINE);
  return {total, region, std::clamp(round_up(region / SLICES_PER_RANK, LINE), MIN_SLICE, MAX_SLICE)};
}

Slices::Slices(Context& context, std::uint64_t sequence)
    : context_(context),
      sequence_(sequence),
      reducing_(context.control().rank_line(context.rank()).reducing),
      done_(context.control().share(sequence, context.rank()).done) {}

// Stored before the first claim, so that messages name a rank that is stopped while it works on a slice.
void Slices::begin_claiming() { reducing_.store(sequence_, std::memory_order_relaxed); }

bool Slices::claim(const SlicePlan& plan, int region, std::size_t& slice) {
  const std::size_t count = plan.slices_of(region);
  auto& claimed = context_.control().share(sequence_, region).claim;
  std::uint64_t word = claimed.load(std::memory_order_relaxed);
  do {
    slice = number_for(word, sequence_);
    if (slice >= count) return false;
    // Relaxed: a claim conveys only the number. The blocks were acquired through the posts.
  } while (!claimed.compare_exchange_weak(word, pack(sequence_, slice + 1), std::memory_order_relaxed,
                                          std::memory_order_relaxed));
  fail_point("comm.claimed_slice");
  return true;
}

bool Slices::note_done() {
  // A rank that gave up reuses its memory for other data. Data read after that must not become a result. So
  // this rank looks at the failure after the read.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (context_.failed()) {
    end_claiming();
    return false;
  }
  // Only this rank writes it. The store publishes its slices to a rank that sees the sum complete.
  const std::uint64_t mine = number_for(done_.load(std::memory_order_relaxed), sequence_);
  done_.store(pack(sequence_, mine + 1), std::memory_order_release);
  worked_ = true;
  return true;
}

void Slices::end_claiming() {
  reducing_.store(0, std::memory_order_relaxed);
  if (worked_) context_.control().ring();
  worked_ = false;
}

bool Slices::all_done(const SlicePlan& plan) const {
  std::size_t done = 0;
  std::size_t count = 0;
  for (int r = 0; r < context_.size(); ++r) {
    count += plan.slices_of(r);
    done +=
        number_for(context_.control().share(sequence_, r).done.load(std::memory_order_acquire), sequence_);
  }
  return done == count;
}

}  // namespace lockstep::shared
