#include "lockstep/comm/backends/shared_collective.h"

#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/shared_copies.h"
#include "lockstep/comm/backends/shared_reductions.h"

namespace lockstep::shared {
namespace {

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
      // What r read there, it read before this rank writes there again.
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

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

}  // namespace

CollectiveOperation::CollectiveOperation(std::shared_ptr<SharedEngine> engine, Request request,
                                         std::uint64_t sequence)
    : Operation(std::move(engine), std::move(request)),
      sequence_(sequence),
      call_(call_of(request_)),
      posted_(static_cast<std::size_t>(engine_->size())) {}

std::string CollectiveOperation::describe() const { return str(name_of(call_.verb), " #", sequence_); }

void CollectiveOperation::post(std::unique_lock<std::mutex>& lock) {
  if (sequence_ > SLOTS) {
    SlotFree slot(*engine_, sequence_, describe());
    engine_->wait(lock, slot, std::nullopt);
    if (!engine_->usable()) engine_->throw_unusable(describe());
  }
  stage();
  engine_->sequence_ = sequence_;
  auto& line = engine_->control().post_line(sequence_, engine_->rank());
  line.call = call_;
  line.offset = block_;
  // Publishes line and block to has_posted(), and is in one order with what this rank then looks at there: of two ranks that
  // post different calls at the same time, at least one sees the other's.
  line.sequence.store(sequence_, std::memory_order_seq_cst);
  auto& mine = engine_->control().rank_line(engine_->rank());
  mine.last_verb.store(static_cast<std::uint32_t>(call_.verb), std::memory_order_relaxed);
  mine.posted.store(sequence_, std::memory_order_relaxed);
  engine_->control().ring();
  fail_point("comm.posted");
  for (int r = 0; r < engine_->size(); ++r) has_posted(r);
  // Another failure is for the wait, which finds out whether this call was complete before it.
  if (disagrees_) engine_->throw_unusable(describe());
}

void CollectiveOperation::stage_copy(const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  block_ = engine_->arena().allocate(bytes);
  staged_ = true;
  std::memcpy(engine_->arena().at(block_), data, bytes);
}

void CollectiveOperation::stage_parts(const std::vector<std::span<const std::byte>>& parts) {
  std::size_t end = round_up(parts.size() * sizeof(Part));
  std::vector<Part> table;
  for (const auto& part : parts) {
    table.push_back({end, part.size()});
    end += round_up(part.size());
  }
  Arena& arena = engine_->arena();
  block_ = arena.allocate(end);
  staged_ = true;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    table[r].offset += block_;
    if (!parts[r].empty()) std::memcpy(arena.at(table[r].offset), parts[r].data(), parts[r].size());
  }
  std::memcpy(arena.at(block_), table.data(), table.size() * sizeof(Part));
}

std::byte* CollectiveOperation::block_of(int rank, std::size_t bytes) const {
  return engine_->block(rank, engine_->control().post_line(sequence_, rank).offset, bytes);
}

const std::byte* CollectiveOperation::part_of(int rank, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(engine_->size());
  Part part;
  std::memcpy(&part,
              block_of(rank, ranks * sizeof(Part)) + static_cast<std::size_t>(engine_->rank()) * sizeof(Part),
              sizeof(part));
  if (part.bytes == bytes) return engine_->block(rank, part.offset, bytes);
  size_mismatch(rank, bytes, part.bytes);
  return nullptr;
}

// A rank that stopped with a slice in hand may write to the block when it goes on.
void CollectiveOperation::give_up() {
  if (in_place_) engine_->arena().condemn(block_);
  if (staged_) engine_->retire(sequence_, block_);
  staged_ = in_place_ = false;
}

bool CollectiveOperation::has_posted(int rank) {
  if (posted_[static_cast<std::size_t>(rank)]) return true;
  if (disagrees_) return false;
  const auto& line = engine_->control().post_line(sequence_, rank);
  if (line.sequence.load(std::memory_order_seq_cst) != sequence_) return false;
  compare_with(rank);
  posted_[static_cast<std::size_t>(rank)] = !disagrees_;
  return !disagrees_;
}

void CollectiveOperation::compare_with(int rank) {
  const Call theirs = engine_->control().post_line(sequence_, rank).call;
  if (agree(call_, theirs)) {
    check_sizes(rank, theirs);
    return;
  }
  disagrees_ = true;
  engine_->record_failure(ErrorCode::MISMATCH, str("ranks disagree about collective #", sequence_, ": rank ",
                                                   engine_->rank(), " called ", lockstep::describe(call_),
                                                   ", rank ", rank, " called ", lockstep::describe(theirs),
                                                   "; all ranks must make the same calls in the same order"));
}

void CollectiveOperation::size_mismatch(int rank, std::size_t expected_bytes, std::size_t found_bytes) {
  const Call theirs = engine_->control().post_line(sequence_, rank).call;
  const std::size_t element = size_of(call_.dtype);
  disagrees_ = true;
  engine_->record_failure(
      ErrorCode::MISMATCH,
      str("ranks disagree about collective #", sequence_, ": rank ", engine_->rank(), " called ",
          lockstep::describe(call_), " and expects ", expected_bytes / element, " elements of rank ", rank,
          ", which called ", lockstep::describe(theirs), " and has ", found_bytes / element, " for it"));
}

bool CollectiveOperation::all_posted() {
  bool all = true;
  for (int r = 0; r < engine_->size(); ++r) all = has_posted(r) && all;
  return all;
}

bool CollectiveOperation::try_advance(std::size_t slices) {
  if (disagrees_ || !move(slices)) return false;
  finish();
  return true;
}

void CollectiveOperation::finish() {
  fail_point("comm.before_finish");
  take_out();
  // Behind this rank's last look at the others' lines and blocks, which their owners use again once they see it.
  engine_->control()
      .post_line(sequence_, engine_->rank())
      .finished.store(sequence_, std::memory_order_release);
  engine_->control().ring();
  if (staged_) engine_->retire(sequence_, block_);
  staged_ = in_place_ = false;
}

std::uint64_t CollectiveOperation::progress() const {
  std::uint64_t posted = 0;
  for (int r = 0; r < engine_->size(); ++r) {
    const auto& line = engine_->control().post_line(sequence_, r);
    posted += line.sequence.load(std::memory_order_relaxed) == sequence_ ? 1 : 0;
  }
  const auto& counters = engine_->control().slot(sequence_);
  return posted + number_for(counters.claim.load(std::memory_order_relaxed), sequence_) +
         number_for(counters.done.load(std::memory_order_relaxed), sequence_);
}

std::vector<int> CollectiveOperation::awaited() const {
  std::vector<int> ranks;
  for (int r = 0; r < engine_->size(); ++r) {
    if (!needs(r)) continue;
    const auto posted = engine_->control().post_line(sequence_, r).sequence.load(std::memory_order_relaxed);
    const auto reducing = engine_->control().rank_line(r).reducing.load(std::memory_order_relaxed);
    if (posted != sequence_ || reducing == sequence_) ranks.push_back(r);
  }
  return ranks;
}

std::shared_ptr<CollectiveOperation> make_collective(const std::shared_ptr<SharedEngine>& engine,
                                                     Request request, std::uint64_t sequence) {
  switch (request.verb) {
    case Verb::BARRIER: return std::make_shared<Barrier>(engine, std::move(request), sequence);
    case Verb::BROADCAST: return std::make_shared<Broadcast>(engine, std::move(request), sequence);
    case Verb::ALL_REDUCE:
    case Verb::REDUCE: return std::make_shared<SlicedReduction>(engine, std::move(request), sequence);
    case Verb::REDUCE_SCATTER: return std::make_shared<ReduceScatter>(engine, std::move(request), sequence);
    case Verb::ALL_GATHER:
    case Verb::GATHER: return std::make_shared<Gather>(engine, std::move(request), sequence);
    case Verb::SCATTER: return std::make_shared<Scatter>(engine, std::move(request), sequence);
    case Verb::ALL_TO_ALL: return std::make_shared<AllToAll>(engine, std::move(request), sequence);
    case Verb::SEND:
    case Verb::RECV: break;
  }
  throw InternalError("a message is not a collective");
}

}  // namespace lockstep::shared
