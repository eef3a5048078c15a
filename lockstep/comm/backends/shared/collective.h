// CollectiveOperation is this rank's side of a collective of the shared-memory engine. It holds the steps
// that all verbs share. The verbs are in shared/reductions.h (all_reduce, reduce, reduce_scatter) and
// shared/copies.h (all other verbs).
//
// Every rank posts its call and the place of its contribution (segment/layout.h). It compares its call with
// each post of another rank as the post appears (shared/agreement.h). It moves data from the sources
// (shared/sources.h), then marks the collective as finished. After that mark it reads nothing of the other
// ranks any more.
//
//   MOVING --move() is true: this rank finishes--> LENDING --all have finished, if it lent data--> done
//
// Nothing moves once the calls disagree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/backends/shared/agreement.h"
#include "lockstep/comm/backends/shared/buffer_guard.h"
#include "lockstep/comm/backends/shared/contribution.h"
#include "lockstep/comm/backends/shared/operation.h"
#include "lockstep/comm/backends/shared/sources.h"
#include "lockstep/comm/call.h"

namespace lockstep::shared {

class CollectiveOperation : public Operation {
 public:
  CollectiveOperation(Context& context, PendingOperations& pending, Request&& request,
                      std::uint64_t sequence);

  // Announces the call to the other ranks. Throws Mismatch if another rank announced a different call.
  // `record` gets the flight recorder's ticket of the call.
  void post(PendingOperations::Lock& lock, FlightRecorder::Ticket& record);
  void give_up() override { contribution_.give_up(); }

  std::uint64_t progress() const override;
  std::vector<int> awaited() const override;
  std::string describe() const override;

 protected:
  // ---- a verb overrides
  virtual void contribute() {}                // puts this rank's data into contribution_
  virtual bool move(std::size_t slices) = 0;  // true when this rank's part is over
  virtual void take_out() {}                  // copies the result out, when the collective is over
  // Whether this rank still waits for `rank`.
  virtual bool owes(int rank) const { return !sources_.is_posted(rank); }
  // Overridden where data are copied in while other ranks already read them. `piece` has just been copied.
  virtual void copied_in(std::span<const std::byte> /*piece*/) {}

  // Remembers the contents of the caller's buffer, which must not change during an asynchronous call. Returns
  // whether it does so: only with LOCKSTEP_DEBUG.
  bool guard(const void* data, std::size_t bytes);
  // Throws InvalidArgument if the buffer changed. Called before the library itself writes there.
  void check_guard();

  // ---- called by a verb
  bool has_posted(int rank) { return agreement_.has_posted(request_, rank); }
  bool all_posted() { return agreement_.all_posted(request_); }
  // Finds the part of `rank`'s contribution that is for this rank. Returns false if the part has a size other
  // than `bytes`; the mismatch is recorded.
  bool find_part(int rank, std::size_t bytes, Source& part);
  // Copies the bytes that are readable and not yet copied. Returns true when nothing is left.
  bool copy_out(int rank, const Source& source, void* output, std::size_t& copied);

  std::size_t bytes_of(std::uint64_t count) const { return count * size_of(call_.dtype); }
  bool is_root() const { return context_->rank() == call_.root; }
  bool try_advance(std::size_t slices) final;

  const std::uint64_t sequence_;
  const Call call_;
  Contribution contribution_;
  Sources sources_;
  Agreement agreement_;

 private:
  enum class Phase { MOVING, LENDING };

  void finish();

  BufferGuard guard_;
  Phase phase_ = Phase::MOVING;
};

}  // namespace lockstep::shared
