#include "lockstep/comm/backends/shared_collective.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/reduce_kernels.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t MIN_SLICE = std::size_t{16} << 10U;
constexpr std::size_t MAX_SLICE = std::size_t{256} << 10U;
constexpr std::size_t SLICES_PER_RANK = 8;

std::size_t slices_of(std::size_t bytes, int ranks) {
  const std::size_t slice = slice_bytes(bytes, ranks);
  return (bytes + slice - 1) / slice;
}

// Waits until a slot of the ring may be used again: everybody has finished the collective that used it last.
class SlotFree : public Waitable {
 public:
  SlotFree(SharedEngine& engine, std::uint64_t sequence, std::string what)
      : engine_(engine), previous_(sequence - SLOTS), what_(std::move(what)) {}

  bool ready() override {
    engine_.advance_pending(
        std::numeric_limits<std::size_t>::max());  // it may be this rank's own old operation
    return awaited().empty();
  }
  std::uint64_t progress() const override { return awaited().size(); }
  std::string describe() const override { return what_; }
  std::vector<int> awaited() const override {
    std::vector<int> ranks;
    for (int r = 0; r < engine_.size(); ++r) {
      const auto& line = engine_.control().post_line(previous_, r);
      if (line.finished.load(std::memory_order_acquire) < previous_ && !engine_.has_left(r))
        ranks.push_back(r);
    }
    return ranks;
  }

 private:
  SharedEngine& engine_;
  const std::uint64_t previous_;
  const std::string what_;
};

}  // namespace

std::size_t slice_bytes(std::size_t total_bytes, int ranks) {
  const std::size_t even = total_bytes / (static_cast<std::size_t>(ranks) * SLICES_PER_RANK);
  return std::clamp(even / LINE * LINE, MIN_SLICE, MAX_SLICE);
}

CollectiveOperation::CollectiveOperation(std::shared_ptr<SharedEngine> engine, Request request,
                                         std::uint64_t sequence)
    : Operation(std::move(engine), std::move(request)),
      sequence_(sequence),
      call_(call_of(request_)),
      posted_(static_cast<std::size_t>(engine_->size())),
      copied_(static_cast<std::size_t>(engine_->size())) {}

std::string CollectiveOperation::describe() const { return str(name_of(call_.verb), " #", sequence_); }

void CollectiveOperation::post(std::unique_lock<std::mutex>& lock) {
  if (sequence_ > SLOTS) {
    SlotFree slot(*engine_, sequence_, describe());
    engine_->wait(lock, slot, std::nullopt);
  }
  stage_input();
  engine_->sequence_ = sequence_;
  auto& line = engine_->control().post_line(sequence_, engine_->rank());
  line.call = call_;
  line.offset = block_;
  line.sequence.store(sequence_, std::memory_order_seq_cst);
  auto& mine = engine_->control().rank_line(engine_->rank());
  mine.last_verb.store(static_cast<std::uint32_t>(call_.verb), std::memory_order_relaxed);
  mine.posted.store(sequence_, std::memory_order_relaxed);
  engine_->control().ring();
  fail_point("comm.posted");
  for (int r = 0; r < engine_->size(); ++r) has_posted(r);
  if (engine_->failed()) engine_->throw_unusable(describe());
}

void CollectiveOperation::stage_input() {
  const std::size_t bytes = bytes_of(call_.count);
  const bool contributes = call_.verb == Verb::ALL_REDUCE || call_.verb == Verb::ALL_GATHER ||
                           (call_.verb == Verb::BROADCAST && call_.root == engine_->rank());
  if (!contributes || bytes == 0) return;
  Arena& arena = engine_->arena();
  if (call_.verb == Verb::ALL_REDUCE && arena.contains(request_.output, bytes)) {
    block_ = arena.offset_of(request_.output);
    return;
  }
  block_ = arena.allocate(bytes);
  staged_ = true;
  std::memcpy(arena.at(block_), request_.input, bytes);
}

bool CollectiveOperation::has_posted(int rank) {
  if (posted_[static_cast<std::size_t>(rank)]) return true;
  const auto& line = engine_->control().post_line(sequence_, rank);
  if (line.sequence.load(std::memory_order_seq_cst) != sequence_) return false;
  compare_with(rank);
  posted_[static_cast<std::size_t>(rank)] = true;
  return true;
}

void CollectiveOperation::compare_with(int rank) {
  const Call theirs = engine_->control().post_line(sequence_, rank).call;
  if (!agree(call_, theirs)) {
    engine_->record_failure(
        ErrorCode::MISMATCH,
        str("ranks disagree about collective #", sequence_, ": rank ", engine_->rank(), " called ",
            lockstep::describe(call_), ", rank ", rank, " called ", lockstep::describe(theirs),
            "; all ranks must make the same calls in the same order"));
  } else if (call_.verb == Verb::ALL_GATHER) {
    const std::size_t expected = request_.outputs[static_cast<std::size_t>(rank)].size();
    if (bytes_of(theirs.count) == expected) return;
    engine_->record_failure(
        ErrorCode::MISMATCH,
        str("ranks disagree about collective #", sequence_, ": rank ", engine_->rank(), " called ",
            lockstep::describe(call_), " and expects ", expected / size_of(call_.dtype), " elements of rank ",
            rank, ", which called ", lockstep::describe(theirs)));
  }
}

bool CollectiveOperation::all_posted() {
  bool all = true;
  for (int r = 0; r < engine_->size(); ++r) all = has_posted(r) && all;
  return all;
}

bool CollectiveOperation::try_advance(std::size_t slices) {
  if (engine_->failed()) return false;
  bool over = false;
  switch (call_.verb) {
    case Verb::BARRIER: over = all_posted(); break;
    case Verb::BROADCAST: over = copy_from_root(); break;
    case Verb::ALL_GATHER: over = copy_from_everybody(); break;
    case Verb::ALL_REDUCE: over = reduce_slices(slices); break;
    case Verb::REDUCE:
    case Verb::GATHER:
    case Verb::SCATTER:
    case Verb::REDUCE_SCATTER:
    case Verb::ALL_TO_ALL: throw InternalError("not yet");
    case Verb::SEND:
    case Verb::RECV: throw InternalError("a message is not a collective");
  }
  if (!over || engine_->failed()) return false;
  finish();
  return true;
}

bool CollectiveOperation::reduce_slices(std::size_t limit) {
  if (!all_posted() || engine_->failed()) return false;
  const std::size_t total = bytes_of(call_.count);
  const std::size_t slice = slice_bytes(total, engine_->size());
  const std::size_t count = slices_of(total, engine_->size());
  auto& counters = engine_->control().slot(sequence_);
  auto& reducing = engine_->control().rank_line(engine_->rank()).reducing;
  std::vector<std::byte*> blocks;
  while (limit-- > 0) {
    std::uint64_t word = counters.claim.load(std::memory_order_relaxed);
    const std::uint64_t mine = number_for(word, sequence_);
    if (mine >= count) break;
    reducing.store(sequence_,
                   std::memory_order_relaxed);  // before the claim: whoever is stopped with a slice is named
    if (!counters.claim.compare_exchange_weak(word, pack(sequence_, mine + 1), std::memory_order_acq_rel))
      continue;
    fail_point("comm.claimed_slice");
    const std::size_t begin = mine * slice;
    const std::size_t bytes = std::min(slice, total - begin);
    blocks.clear();
    for (int r = 0; r < engine_->size(); ++r) {
      const std::uint64_t offset = engine_->control().post_line(sequence_, r).offset;
      blocks.push_back(engine_->block(r, offset + begin, bytes));
    }
    const std::vector<const std::byte*> inputs(blocks.begin(), blocks.end());
    reduce(call_.dtype, call_.op, inputs, blocks, bytes / size_of(call_.dtype));
    std::uint64_t done = counters.done.load(std::memory_order_relaxed);
    while (!counters.done.compare_exchange_weak(done, pack(sequence_, number_for(done, sequence_) + 1),
                                                std::memory_order_acq_rel)) {
    }
    if (number_for(done, sequence_) + 1 == count) engine_->control().ring();
  }
  if (reducing.load(std::memory_order_relaxed) != 0) reducing.store(0, std::memory_order_relaxed);
  return number_for(counters.done.load(std::memory_order_acquire), sequence_) == count;
}

bool CollectiveOperation::copy_from_root() {
  if (engine_->rank() == call_.root) return true;
  if (!has_posted(call_.root)) return false;
  if (engine_->failed()) return false;
  const std::size_t bytes = bytes_of(call_.count);
  if (bytes == 0) return true;
  const auto& line = engine_->control().post_line(sequence_, call_.root);
  std::memcpy(request_.output, engine_->block(call_.root, line.offset, bytes), bytes);
  return true;
}

bool CollectiveOperation::copy_from_everybody() {
  bool all = true;
  for (int r = 0; r < engine_->size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (copied_[at]) continue;
    if (!has_posted(r)) {
      all = false;
      continue;
    }
    if (engine_->failed()) return false;
    const auto& output = request_.outputs[at];
    if (!output.empty()) {
      const auto& line = engine_->control().post_line(sequence_, r);
      std::memcpy(output.data(), engine_->block(r, line.offset, output.size()), output.size());
    }
    copied_[at] = true;
  }
  return all;
}

void CollectiveOperation::finish() {
  fail_point("comm.before_finish");
  if (staged_ && call_.verb == Verb::ALL_REDUCE) {
    std::memcpy(request_.output, engine_->arena().at(block_), bytes_of(call_.count));
  }
  engine_->control()
      .post_line(sequence_, engine_->rank())
      .finished.store(sequence_, std::memory_order_release);
  engine_->control().ring();
  if (staged_) engine_->retire(sequence_, block_);
}

std::uint64_t CollectiveOperation::progress() const {
  std::uint64_t posted = 0;
  for (int r = 0; r < engine_->size(); ++r) {
    posted += engine_->control().post_line(sequence_, r).sequence.load(std::memory_order_relaxed) == sequence_
                  ? 1
                  : 0;
  }
  const auto& counters = engine_->control().slot(sequence_);
  return posted + number_for(counters.claim.load(std::memory_order_relaxed), sequence_) +
         number_for(counters.done.load(std::memory_order_relaxed), sequence_);
}

std::vector<int> CollectiveOperation::awaited() const {
  std::vector<int> ranks;
  for (int r = 0; r < engine_->size(); ++r) {
    if (call_.verb == Verb::BROADCAST && r != call_.root) continue;
    const auto posted = engine_->control().post_line(sequence_, r).sequence.load(std::memory_order_acquire);
    const auto reducing = engine_->control().rank_line(r).reducing.load(std::memory_order_relaxed);
    if (posted != sequence_ || reducing == sequence_) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace lockstep::shared
