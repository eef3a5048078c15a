#include "lockstep/comm/backends/shared/reductions.h"

#include <algorithm>
#include <cstring>

#include "lockstep/comm/backends/segment/rank_addresses.h"
#include "lockstep/comm/kernels/reduce_kernels.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t PIECE = std::size_t{64} << 10U;  // of a reduce_scatter; it stays in the cache
// an output of a reduce_scatter from this size on is in no cache, neither now nor when it is read
constexpr std::size_t LARGE = std::size_t{4} << 20U;

}  // namespace

void Reduction::contribute() {
  if (bytes() == 0) return;
  path_ = context_->paths().path_of(bytes());
  if (path_ == Path::INLINE) return contribution_.put_in_line(request_.input, bytes());
  if (guard(request_.output, bytes())) return contribution_.put_in_block(request_.input, bytes());
  if (context_->arena().contains(request_.output, bytes()))
    return contribution_.lend(request_.output, Contribution::Access::WRITE);
  const bool by_window = path_ == Path::WINDOW || path_ == Path::TWO_SHOT;
  if (!by_window || request_.async_op || call_.verb != Verb::ALL_REDUCE)
    return contribution_.put_in_block(request_.input, bytes());
  const WindowPlan plan = window_plan(bytes(), context_->size(), path_ == Path::TWO_SHOT);
  if (!contribution_.use_window(plan.window_bytes()))
    return contribution_.put_in_block(request_.input, bytes());
  window_.emplace(*context_, plan, call_, sequence_, static_cast<std::byte*>(request_.output));
}

void Reduction::decide() {
  method_ = ReductionMethod::DIRECT;
  if (path_ == Path::INLINE) return;  // as on every rank, because the size alone decides
  bool same = true;
  const Placement first = sources_.placement(0);
  for (int r = 1; r < context_->size(); ++r) same = same && sources_.placement(r) == first;
  if (same && first == Placement::IN_BLOCK && path_ == Path::ONE_SHOT) return;
  if (same && first == Placement::WINDOWED) {
    method_ = ReductionMethod::WINDOW;
  } else {
    method_ = ReductionMethod::SLICES;
    sources_.read_late_blocks();
    if (contribution_.placement() == Placement::WINDOWED)
      contribution_.put_late_block(request_.input, bytes());
  }
}

bool Reduction::move(std::size_t slices) {
  if (!all_posted()) return false;
  if (method_ == ReductionMethod::UNDECIDED) decide();
  if (method_ == ReductionMethod::SLICES) return reduce_slices(slices);
  if (method_ == ReductionMethod::WINDOW) return window_->advance();
  if (receives() && bytes() > 0) reduce_directly();
  return true;
}

bool Reduction::owes(int rank) const {
  if (!sources_.is_posted(rank)) return true;
  if (method_ == ReductionMethod::WINDOW) return !window_->has_reduced_all(rank);
  if (method_ == ReductionMethod::SLICES && !has_block(rank)) return true;
  return context_->control().rank_line(rank).reducing.load(std::memory_order_relaxed) == sequence_;
}

void Reduction::reduce_directly() {
  check_guard();
  RankAddresses<const std::byte> inputs(context_->size());
  for (int r = 0; r < context_->size(); ++r) {
    inputs.add(r == context_->rank() ? static_cast<const std::byte*>(request_.input)
                                     : sources_.address(r, bytes()));
  }
  auto* output = static_cast<std::byte*>(request_.output);
  reduce(call_.dtype, call_.op, inputs.all(), {&output, 1}, call_.count);
}

bool Reduction::has_block(int rank) const {
  return sources_.placement(rank) != Placement::WINDOWED || sources_.has_late_block(rank);
}

bool Reduction::reduce_slices(std::size_t slices) {
  for (int r = 0; r < context_->size(); ++r) {
    if (!has_block(r)) return false;
  }
  // After a failure, the owner of a block may have given it up. Slices that other ranks finished still count.
  if (context_->failed()) slices = 0;
  const SlicePlan plan = slice_plan(bytes(), context_->size());
  Slices work(*context_, sequence_);
  if (!work.work(plan, slices, [&](std::size_t begin, std::size_t size) { reduce_slice(begin, size); }))
    return false;
  contribution_.withdraw();  // no rank touches it any more
  return true;
}

void Reduction::reduce_slice(std::size_t begin, std::size_t bytes) {
  RankAddresses<const std::byte> inputs(context_->size());
  RankAddresses<std::byte> outputs(context_->size());
  for (int r = 0; r < context_->size(); ++r) {
    std::byte* slice = sources_.address(r, this->bytes()) + begin;
    inputs.add(slice);
    if (call_.verb == Verb::ALL_REDUCE || r == call_.root) outputs.add(slice);
  }
  reduce(call_.dtype, call_.op, inputs.all(), outputs.all(), bytes / size_of(call_.dtype));
}

void Reduction::take_out() {
  check_guard();
  const std::byte* block = contribution_.staged_block();
  if (method_ == ReductionMethod::SLICES && block != nullptr && receives())
    std::memcpy(request_.output, block, bytes());
}

void ReduceScatter::contribute() {
  if (!exchange_.offer(request_, request_.inputs, /*is_same=*/false, contribution_))
    contribution_.put_parts(request_, request_.inputs);
}

bool ReduceScatter::find_parts() {
  if (!parts_.empty()) return true;
  for (int r = 0; r < context_->size(); ++r) {
    if (!has_posted(r) || !exchange_.is_settled(sources_, r)) return false;
  }
  std::vector<Source> parts(static_cast<std::size_t>(context_->size()));
  for (int r = 0; r < context_->size(); ++r) {
    if (r != context_->rank() && !find_part(r, bytes_of(call_.count), parts[static_cast<std::size_t>(r)]))
      return false;
  }
  const auto own = static_cast<std::size_t>(context_->rank());
  parts[own].data = request_.inputs[own].data();
  parts_ = std::move(parts);
  return true;
}

bool ReduceScatter::find_inputs(std::size_t bytes, RankAddresses<const std::byte>& inputs) const {
  for (int r = 0; r < context_->size(); ++r) {
    const Source& part = parts_[static_cast<std::size_t>(r)];
    if (r != context_->rank() && (sources_.is_lost(r) || sources_.readable(r, part) < reduced_ + bytes))
      return false;
    inputs.add(part.data + reduced_);
  }
  return true;
}

bool ReduceScatter::move(std::size_t slices) {
  const Exchange::Method method = exchange_.method(request_, agreement_, contribution_, sources_);
  if (method != Exchange::Method::WINDOW) return reduce_blocks(slices);
  return exchange_.passage().advance([&](std::size_t begin, const Parts& pieces) {
    RankAddresses<const std::byte> inputs(context_->size());
    for (const auto& piece : pieces) inputs.add(piece.data());
    combine(inputs, begin, pieces[0].size());
  });
}

void ReduceScatter::combine(const RankAddresses<const std::byte>& inputs, std::size_t begin,
                            std::size_t bytes) const {
  auto* const output = static_cast<std::byte*>(request_.output) + begin;
  const auto is_output = [output](const std::byte* input) { return input == output; };
  const bool past_caches = bytes_of(call_.count) >= LARGE && std::ranges::none_of(inputs.all(), is_output);
  reduce(call_.dtype, call_.op, inputs.all(), {&output, 1}, bytes / size_of(call_.dtype), past_caches);
}

bool ReduceScatter::reduce_blocks(std::size_t slices) {
  if (!find_parts()) return false;
  const std::size_t total = bytes_of(call_.count);
  for (; slices > 0 && reduced_ < total; --slices) {
    const std::size_t bytes = std::min(PIECE, total - reduced_);
    RankAddresses<const std::byte> inputs(context_->size());
    if (!find_inputs(bytes, inputs)) return false;
    combine(inputs, reduced_, bytes);
    RankAddresses<const std::byte> again(context_->size());
    if (!find_inputs(bytes, again)) return false;  // after a failure, lent data may have changed meanwhile
    reduced_ += bytes;
  }
  return reduced_ == total;
}

}  // namespace lockstep::shared
