#include "lockstep/comm/backends/shared/collective.h"

#include <initializer_list>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"

namespace lockstep::shared {
namespace {

// Waits until a slot of the ring may be used again: all ranks have finished the collective that used it last.
class SlotFree : public Waitable {
 public:
  SlotFree(Context& context, PendingOperations& pending, std::uint64_t sequence, std::string what)
      : context_(context), pending_(pending), previous_(sequence - SLOTS), what_(std::move(what)) {}

  bool ready() override {
    pending_.advance(ALL_SLICES);  // the collective may be this rank's own old operation
    return context_.sequencer().all_finished(previous_);
  }
  std::uint64_t progress() const override { return awaited().size(); }
  std::string describe() const override { return what_; }
  std::vector<int> awaited() const override {
    std::vector<int> ranks;
    for (int r = 0; r < context_.size(); ++r) {
      if (!context_.sequencer().has_finished(r, previous_)) ranks.push_back(r);
    }
    return ranks;
  }

 private:
  Context& context_;
  PendingOperations& pending_;
  const std::uint64_t previous_;
  const std::string what_;
};

}  // namespace

CollectiveOperation::CollectiveOperation(Context& context, PendingOperations& pending, Request&& request,
                                         std::uint64_t sequence)
    : Operation(context, pending, std::move(request)),
      sequence_(sequence),
      call_(call_of(request_)),
      contribution_(context, sequence),
      sources_(context, sequence),
      agreement_(context, sequence, call_) {}

std::string CollectiveOperation::describe() const { return describe_own(request_, sequence_); }

void CollectiveOperation::post(PendingOperations::Lock& lock, FlightRecorder::Ticket& record) {
  if (!context_->sequencer().is_slot_free(sequence_)) {
    SlotFree slot(*context_, *pending_, sequence_, describe());
    pending_->wait(lock, slot, std::nullopt);
    if (!context_->usable()) context_->throw_unusable(describe());
  }
  contribute();
  contribution_.post(call_);
  record = context_->recorder().start(call_, sequence_);
  fail_point("comm.posted");
  for (int r = 0; r < context_->size(); ++r) has_posted(r);
  // Any other failure is left to the wait, which finds out whether this call was complete before the failure.
  if (agreement_.disagrees()) context_->throw_unusable(describe());
  contribution_.fill([this](std::span<const std::byte> piece) { copied_in(piece); });
}

bool CollectiveOperation::guard(const void* data, std::size_t bytes) {
  if (!context_->debugs() || !request_.async_op || bytes == 0) return false;
  guard_.watch(data, bytes);
  return true;
}

void CollectiveOperation::check_guard() {
  if (!guard_.is_watching()) return;
  const std::size_t bytes = guard_.bytes();
  const auto byte = guard_.first_change();
  guard_.end();
  if (!byte) return;
  throw InvalidArgument(str(describe(), " on ", text_of(context_->membership().place()),
                            ": this rank's buffer of ", bytes, " bytes was written at byte ", *byte,
                            " while the operation was in flight; between an asynchronous call and the end of "
                            "its wait() no code may "
                            "write there (found because LOCKSTEP_DEBUG is on)"));
}

bool CollectiveOperation::find_part(int rank, std::size_t bytes, Source& part) {
  if (!agreement_.check_size(rank, bytes, sources_.part_entry(rank).bytes)) return false;
  part = sources_.part(rank, bytes);
  return true;
}

bool CollectiveOperation::copy_out(int rank, const Source& source, void* output, std::size_t& copied) {
  const Copied result = sources_.copy_out(rank, source, output, copied);
  // If the owner is gone, the wait reports it.
  if (result == Copied::UNREADABLE && context_->membership().is_alive(rank)) {
    context_->record_failure(
        {ErrorCode::ABORTED,
         str(describe(), ": rank ", context_->rank(), " can no longer read the memory of rank ", rank,
             " (process_vm_readv), which it could when the group was made; LOCKSTEP_DISABLE=peer_memory "
             "avoids "
             "such reads"),
         rank, context_->rank()});
  }
  return result == Copied::ALL;
}

bool CollectiveOperation::try_advance(std::size_t slices) {
  if (phase_ == Phase::MOVING) {
    if (agreement_.disagrees() || !move(slices)) return false;
    finish();
  }
  if (contribution_.is_lent() && !context_->sequencer().all_finished(sequence_)) return false;
  contribution_.end();
  check_guard();
  return true;
}

void CollectiveOperation::finish() {
  fail_point("comm.before_finish");
  take_out();
  phase_ = Phase::LENDING;
  context_->sequencer().finish(sequence_);
  context_->control().ring();  // wakes ranks that have lent the data read here
  contribution_.retire();
}

std::uint64_t CollectiveOperation::progress() const {
  std::uint64_t sum = 0;
  for (int r = 0; r < context_->size(); ++r) {
    const Share& theirs = sources_.share(r);
    const WindowLine& window = context_->control().window_line(r);
    for (const auto* word : std::initializer_list<const std::atomic<std::uint64_t>*>{
             &sources_.line(r).sequence, &theirs.claim, &theirs.done, &theirs.staged, &window.in,
             &window.done, &context_->control().rank_line(r).finished}) {
      sum += word->load(std::memory_order_relaxed);
    }
  }
  return sum;
}

std::vector<int> CollectiveOperation::awaited() const {
  std::vector<int> ranks;
  for (int r = 0; r < context_->size(); ++r) {
    const bool is_late =
        phase_ == Phase::MOVING ? owes(r) : !context_->sequencer().has_finished(r, sequence_);
    if (is_late) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace lockstep::shared
