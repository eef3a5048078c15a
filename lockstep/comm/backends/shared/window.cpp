#include "lockstep/comm/backends/shared/window.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/round_up.h"
#include "lockstep/comm/backends/segment/rank_addresses.h"
#include "lockstep/comm/kernels/reduce_kernels.h"
#include "lockstep/os/process.h"

namespace lockstep::shared {
namespace {

// A core reads data of another core fastest once the data have left the writer's own cache, so chunks are
// large. A window grows with the number of ranks, so portions shrink.
constexpr std::size_t CHUNK = std::size_t{1} << 20U;
constexpr std::size_t LEAST_PORTION = std::size_t{64} << 10U;
constexpr std::size_t SLOTS_OF_WINDOW = 4;
constexpr int SPINS = 50;  // number of looks before the rank does other work

}  // namespace

WindowPlan window_plan(std::size_t total, int ranks, bool one_chunk) {
  const auto count = static_cast<std::size_t>(ranks);
  WindowPlan plan;
  plan.total = total;
  plan.portion = one_chunk ? round_up((total + count - 1) / count, LINE)
                           : std::max(CHUNK / count / LINE * LINE, LEAST_PORTION);
  plan.chunk = plan.portion * count;
  plan.chunks = (total + plan.chunk - 1) / plan.chunk;
  plan.slots = std::min(plan.chunks, SLOTS_OF_WINDOW);
  return plan;
}

WindowPlan::Range WindowPlan::range(std::size_t chunk_number, int rank) const {
  const std::size_t begin = std::min(total, chunk_number * chunk + static_cast<std::size_t>(rank) * portion);
  return {begin, std::min(portion, total - begin)};
}

std::size_t WindowPlan::place(std::size_t chunk_number, int rank) const {
  return chunk_number % slots * chunk + static_cast<std::size_t>(rank) * portion;
}

WindowReduction::WindowReduction(Context& context, const WindowPlan& plan, const Call& call,
                                 std::uint64_t sequence, std::byte* data)
    : context_(&context), plan_(plan), call_(call), sequence_(sequence), data_(data) {}

bool WindowReduction::advance() {
  for (int idle = 0; out_ < plan_.chunks && idle < SPINS; ++idle) {
    if (step()) {
      idle = 0;
    } else {
      relax_cpu();
    }
  }
  return out_ == plan_.chunks;
}

// Does each of the three steps once, if the progress of the other ranks permits.
bool WindowReduction::step() {
  const std::size_t before = in_ + reduced_ + out_;
  if (in_ < plan_.chunks && in_ < out_ + plan_.slots) copy_in();
  if (reduced_ < in_ && all_reached(&WindowLine::in, pack(sequence_, reduced_ + 1))) reduce_portion();
  if (out_ < reduced_ && all_reached(&WindowLine::done, pack(sequence_, out_ + 1))) copy_out();
  return in_ + reduced_ + out_ != before;
}

bool WindowReduction::all_reached(std::atomic<std::uint64_t> WindowLine::*counter, std::uint64_t word) const {
  for (int r = 0; r < context_->size(); ++r) {
    // Acquires the data that the other rank wrote before it got there.
    if (r != context_->rank() &&
        (context_->control().window_line(r).*counter).load(std::memory_order_acquire) < word)
      return false;
  }
  return true;
}

bool WindowReduction::has_reduced_all(int rank) const {
  return context_->control().window_line(rank).done.load(std::memory_order_relaxed) >=
         pack(sequence_, plan_.chunks);
}

std::byte* WindowReduction::slot(int rank, std::size_t chunk, int portion) const {
  const std::uint64_t window = context_->control().post_line(sequence_, rank).offset;
  return context_->membership().block(rank, window, plan_.window_bytes()) + plan_.place(chunk, portion);
}

void WindowReduction::copy_in() {
  for (int q = 0; q < context_->size(); ++q) {
    const auto [begin, bytes] = plan_.range(in_, q);
    if (q != context_->rank() && bytes > 0) std::memcpy(slot(context_->rank(), in_, q), data_ + begin, bytes);
  }
  ++in_;
  // Publishes the copies.
  context_->control().window_line(context_->rank()).in.store(pack(sequence_, in_), std::memory_order_release);
  context_->control().ring();
  fail_point("comm.window_in");
}

void WindowReduction::reduce_portion() {
  const int rank = context_->rank();
  const auto [begin, bytes] = plan_.range(reduced_, rank);
  if (bytes > 0) {
    RankAddresses<const std::byte> inputs(context_->size());
    RankAddresses<std::byte> outputs(context_->size());
    for (int r = 0; r < context_->size(); ++r) {
      std::byte* portion = r == rank ? data_ + begin : slot(r, reduced_, rank);
      inputs.add(portion);
      outputs.add(portion);
    }
    reduce(call_.dtype, call_.op, inputs.all(), outputs.all(), bytes / size_of(call_.dtype));
  }
  ++reduced_;
  // Publishes the results.
  context_->control().window_line(rank).done.store(pack(sequence_, reduced_), std::memory_order_release);
  context_->control().ring();
  fail_point("comm.window_reduced");
}

void WindowReduction::copy_out() {
  for (int q = 0; q < context_->size(); ++q) {
    const auto [begin, bytes] = plan_.range(out_, q);
    if (q != context_->rank() && bytes > 0)
      std::memcpy(data_ + begin, slot(context_->rank(), out_, q), bytes);
  }
  ++out_;
  fail_point("comm.window_out");
}

}  // namespace lockstep::shared
