#include "lockstep/comm/backends/shared/collective.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"

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
    return engine_.all_finished(previous_);
  }
  std::uint64_t progress() const override { return awaited().size(); }
  std::string describe() const override { return what_; }
  std::vector<int> awaited() const override {
    std::vector<int> ranks;
    for (int r = 0; r < engine_.size(); ++r) {
      if (!engine_.has_finished(r, previous_)) ranks.push_back(r);
    }
    return ranks;
  }

 private:
  SharedEngine& engine_;
  const std::uint64_t previous_;
  const std::string what_;
};

}  // namespace

CollectiveOperation::CollectiveOperation(SharedEngine& engine, Request&& request, std::uint64_t sequence)
    : Operation(engine, std::move(request)),
      sequence_(sequence),
      call_(call_of(request_)),
      posted_(engine.size()) {}

std::string CollectiveOperation::describe() const { return describe_own(request_, sequence_); }

void CollectiveOperation::post(std::unique_lock<std::mutex>& lock) {
  if (sequence_ > SLOTS && !engine_->all_finished(sequence_ - SLOTS)) {
    SlotFree slot(*engine_, sequence_, describe());
    engine_->wait(lock, slot, std::nullopt);
    if (!engine_->usable()) engine_->throw_unusable(describe());
  }
  contribute();
  engine_->post(call_, mine_, block_, staged_bytes_);
  for (int r = 0; r < engine_->size(); ++r) has_posted(r);
  // Another failure is for the wait, which finds out whether this call was complete before it.
  if (disagrees_) engine_->throw_unusable(describe());
  if (!growth_.empty()) fill();
}

bool CollectiveOperation::guard(const void* data, std::size_t bytes) {
  if (!engine_->debugs() || !request_.async_op || bytes == 0) return false;
  const auto* first = static_cast<const std::byte*>(data);
  guarded_.assign(first, first + bytes);
  guarded_at_ = data;
  return true;
}

void CollectiveOperation::check_guard() {
  const std::vector<std::byte> before = std::move(guarded_);
  guarded_.clear();
  const auto* now = static_cast<const std::byte*>(guarded_at_);
  const auto changed = std::mismatch(before.begin(), before.end(), now).first;
  if (changed == before.end()) return;
  throw InvalidArgument(str(
      describe(), " on ", text_of(engine_->place()), ": this rank's buffer of ", before.size(),
      " bytes was written at byte ", changed - before.begin(),
      " while the operation was in flight; between an asynchronous call and the end of its wait() nobody may "
      "write there (found because LOCKSTEP_DEBUG is on)"));
}

std::byte* CollectiveOperation::contribution(int rank, std::size_t bytes) const {
  PostLine& theirs = line(rank);
  if (theirs.placement == Placement::IN_LINE) {
    if (bytes > PostLine::ROOM)
      throw InternalError(str("rank ", rank, " posted ", bytes, " bytes in its line"));
    return theirs.payload;
  }
  const bool late = may_come_late(theirs.placement) && staged_late_;
  return engine_->block(rank, late ? share(rank).late_block : theirs.offset, bytes);
}

Source CollectiveOperation::whole(int rank, std::size_t bytes) const {
  if (placement(rank) == Placement::PRIVATE && !staged_late_)
    return {reinterpret_cast<const std::byte*>(line(rank).offset), bytes, bytes,
            true};  // NOLINT(performance-no-int-to-ptr)
  return {contribution(rank, bytes), bytes, bytes};
}

std::size_t CollectiveOperation::readable(int rank, const Source& source) const {
  if (placement(rank) != Placement::GROWING) return source.bytes;
  const std::size_t staged =
      number_for(share(rank).staged.load(std::memory_order_acquire), sequence_) * STAGED_PIECE;
  const std::size_t begin = source.behind - source.bytes;
  return std::min(source.bytes, std::max(staged, begin) - begin);
}

bool CollectiveOperation::is_complete(int rank) const {
  if (!is_posted(rank)) return false;
  const auto staged = number_for(share(rank).staged.load(std::memory_order_relaxed), sequence_);
  if (may_come_late(placement(rank))) return !staged_late_ || staged > 0;
  return placement(rank) != Placement::GROWING || staged * STAGED_PIECE >= line(rank).bytes;
}

bool CollectiveOperation::copy_out(int rank, const Source& source, void* output, std::size_t& copied) {
  const std::size_t there = readable(rank, source);
  if (there > copied && !is_lost(rank)) {
    const std::span to(static_cast<std::byte*>(output) + copied, there - copied);
    if (source.is_private) {
      if (!copy_private(rank, reinterpret_cast<std::uintptr_t>(source.data) + copied, to)) return false;
    } else {
      std::memcpy(to.data(), source.data + copied, to.size());
    }
    copied = there;
  }
  return copied == source.bytes && !is_lost(rank);
}

// False when its owner is gone, which the wait finds out.
bool CollectiveOperation::copy_private(int rank, std::uint64_t address, std::span<std::byte> to) {
  if (engine_->read_private(rank, address, to)) return true;
  if (engine_->is_alive(rank)) {
    engine_->record_failure(
        {ErrorCode::ABORTED,
         str(describe(), ": rank ", engine_->rank(), " may not read the memory of rank ", rank,
             " any more, as it could when the group was made (process_vm_readv); "
             "LOCKSTEP_DISABLE=peer_memory does without"),
         rank, engine_->rank()});
  }
  return false;
}

// What `rank`'s table says about this one.
Part CollectiveOperation::part_entry(int rank) const {
  const auto ranks = static_cast<std::size_t>(engine_->size());
  const auto own = static_cast<std::size_t>(engine_->rank());
  Part entry;
  std::memcpy(&entry, contribution(rank, ranks * sizeof(Part)) + own * sizeof(Part), sizeof(entry));
  return entry;
}

bool CollectiveOperation::check_part(int rank, std::size_t bytes) {
  const std::size_t found = part_entry(rank).bytes;
  if (found != bytes) size_mismatch(rank, bytes, found);
  return found == bytes;
}

bool CollectiveOperation::find_part(int rank, std::size_t bytes, Source& part) {
  if (!check_part(rank, bytes)) return false;
  const Part entry = part_entry(rank);
  if (placement(rank) == Placement::PRIVATE && !staged_late_) {
    part = {reinterpret_cast<const std::byte*>(entry.offset), bytes, bytes,
            true};  // NOLINT(performance-no-int-to-ptr)
  } else {
    part = {engine_->block(rank, entry.offset, bytes), bytes, std::max(entry.behind, entry.bytes)};
  }
  return true;
}

// A rank that stopped with a slice in hand may write to the block when it goes on.
void CollectiveOperation::give_up() {
  if (others_write_) engine_->arena().condemn(block_);
  if (staged_bytes_ > 0) engine_->retire(sequence_, block_, staged_bytes_);
  staged_bytes_ = 0;
  others_write_ = lent_ = false;
}

bool CollectiveOperation::has_posted(int rank) {
  if (posted_.contains(rank)) return true;
  if (disagrees_) return false;
  const auto& theirs = line(rank);
  if (theirs.sequence.load(std::memory_order_seq_cst) != sequence_) return false;
  engine_->learn_finished(rank, theirs.finished);
  compare_with(rank);
  if (!disagrees_) posted_.insert(rank);
  return !disagrees_;
}

void CollectiveOperation::compare_with(int rank) {
  const Call& theirs = line(rank).call;
  if (agree(call_, theirs)) {
    check_sizes(rank, theirs);
    return;
  }
  disagrees_ = true;
  engine_->record_failure(
      mismatched(engine_->rank(), describe_disagreement(sequence_, engine_->rank(), call_, rank, theirs)));
}

void CollectiveOperation::size_mismatch(int rank, std::size_t expected_bytes, std::size_t found_bytes) {
  disagrees_ = true;
  engine_->record_failure(
      mismatched(engine_->rank(),
                 describe_disagreement(sequence_, call_, line(rank).call,
                                       {engine_->rank(), expected_bytes, rank, found_bytes}),
                 MismatchKind::SIZES));
}

bool CollectiveOperation::all_posted() {
  if (posted_.full()) return true;
  for (int r = 0; r < engine_->size(); ++r) has_posted(r);
  return posted_.full();
}

bool CollectiveOperation::try_advance(std::size_t slices) {
  if (!over_) {
    if (disagrees_ || !move(slices)) return false;
    finish();
  }
  if (lent_ && !engine_->all_finished(sequence_)) return false;
  if (has_window_) engine_->give_back_window();
  if (!guarded_.empty()) check_guard();
  return true;
}

void CollectiveOperation::finish() {
  fail_point("comm.before_finish");
  take_out();
  over_ = true;
  engine_->finish(sequence_);
  engine_->control().ring();  // for whoever has lent what was read here
  if (staged_bytes_ > 0) engine_->retire(sequence_, block_, staged_bytes_);
  staged_bytes_ = 0;
}

std::uint64_t CollectiveOperation::progress() const {
  std::uint64_t sum = 0;
  for (int r = 0; r < engine_->size(); ++r) {
    const Share& theirs = share(r);
    const WindowLine& window = engine_->control().window_line(r);
    for (const auto* word : std::initializer_list<const std::atomic<std::uint64_t>*>{
             &line(r).sequence, &theirs.claim, &theirs.done, &theirs.staged, &window.in, &window.done,
             &engine_->control().rank_line(r).finished}) {
      sum += word->load(std::memory_order_relaxed);
    }
  }
  return sum;
}

std::vector<int> CollectiveOperation::awaited() const {
  std::vector<int> ranks;
  for (int r = 0; r < engine_->size(); ++r) {
    if (over_ ? !engine_->has_finished(r, sequence_) : owes(r)) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace lockstep::shared
