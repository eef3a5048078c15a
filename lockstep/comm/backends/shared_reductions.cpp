#include "lockstep/comm/backends/shared_reductions.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/fail_point.h"
#include "lockstep/comm/reduce_kernels.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t MIN_SLICE = std::size_t{16} << 10U;
constexpr std::size_t MAX_SLICE = std::size_t{256} << 10U;
constexpr std::size_t SLICES_PER_RANK = 8;

}  // namespace

std::size_t slice_bytes(std::size_t total_bytes, int ranks) {
  const std::size_t even = total_bytes / (static_cast<std::size_t>(ranks) * SLICES_PER_RANK);
  return std::clamp(even / LINE * LINE, MIN_SLICE, MAX_SLICE);
}

void SlicedReduction::stage() {
  const std::size_t bytes = bytes_of(call_.count);
  const Arena& arena = engine_->arena();
  if (bytes > 0 && arena.contains(request_.output, bytes)) {
    block_ = arena.offset_of(request_.output);
    in_place_ = true;
  } else {
    stage_copy(request_.input, bytes);
  }
}

bool SlicedReduction::move(std::size_t slices) {
  if (!all_posted()) return false;
  if (engine_->failed()) slices = 0;  // its owner may have given up on a block; what others finished counts
  const std::size_t total = bytes_of(call_.count);
  const std::size_t slice = slice_bytes(total, engine_->size());
  const std::size_t count = (total + slice - 1) / slice;
  auto& counters = engine_->control().slot(sequence_);
  auto& reducing = engine_->control().rank_line(engine_->rank()).reducing;
  while (slices-- > 0) {
    std::uint64_t word = counters.claim.load(std::memory_order_relaxed);
    const std::uint64_t mine = number_for(word, sequence_);
    if (mine >= count) break;
    // Before the claim: whoever is stopped with a slice in hand is named.
    reducing.store(sequence_, std::memory_order_relaxed);
    // A claim tells nothing but the number; the blocks were seen through the posts.
    if (!counters.claim.compare_exchange_weak(word, pack(sequence_, mine + 1), std::memory_order_relaxed,
                                              std::memory_order_relaxed))
      continue;
    fail_point("comm.claimed_slice");
    reduce_slice(mine * slice, std::min(slice, total - mine * slice));
    std::uint64_t done = counters.done.load(std::memory_order_relaxed);
    // Every increment publishes its slice; whoever reads the last one has seen them all (a release sequence).
    while (!counters.done.compare_exchange_weak(done, pack(sequence_, number_for(done, sequence_) + 1),
                                                std::memory_order_release, std::memory_order_relaxed)) {
    }
    if (number_for(done, sequence_) + 1 == count) engine_->control().ring();
  }
  if (reducing.load(std::memory_order_relaxed) != 0) reducing.store(0, std::memory_order_relaxed);
  return number_for(counters.done.load(std::memory_order_acquire), sequence_) == count;
}

void SlicedReduction::reduce_slice(std::size_t begin, std::size_t bytes) {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (int r = 0; r < engine_->size(); ++r) {
    const std::uint64_t offset = engine_->control().post_line(sequence_, r).offset;
    std::byte* slice = engine_->block(r, offset + begin, bytes);
    inputs.push_back(slice);
    if (call_.verb == Verb::ALL_REDUCE || r == call_.root) outputs.push_back(slice);
  }
  reduce(call_.dtype, call_.op, inputs, outputs, bytes / size_of(call_.dtype));
}

void SlicedReduction::take_out() {
  const bool receives = call_.verb == Verb::ALL_REDUCE || is_root();
  if (staged_ && receives) std::memcpy(request_.output, engine_->arena().at(block_), bytes_of(call_.count));
}

bool ReduceScatter::find_inputs() {
  if (!inputs_.empty()) return true;
  if (!all_posted()) return false;
  std::vector<const std::byte*> inputs;
  for (int r = 0; r < engine_->size(); ++r) {
    inputs.push_back(part_of(r, bytes_of(call_.count)));
    if (inputs.back() == nullptr) return false;
  }
  inputs_ = std::move(inputs);
  return true;
}

bool ReduceScatter::move(std::size_t slices) {
  if (!find_inputs()) return false;
  const std::size_t total = bytes_of(call_.count);
  for (; slices > 0 && reduced_ < total; --slices) {
    const std::size_t bytes = std::min(MAX_SLICE, total - reduced_);
    std::vector<const std::byte*> inputs;
    for (const std::byte* input : inputs_) inputs.push_back(input + reduced_);
    std::byte* output = static_cast<std::byte*>(request_.output) + reduced_;
    reduce(call_.dtype, call_.op, inputs, {&output, 1}, bytes / size_of(call_.dtype));
    reduced_ += bytes;
  }
  return reduced_ == total;
}

}  // namespace lockstep::shared
