#include "lockstep/comm/backends/shared/context.h"

#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::shared {
namespace {

bool is_on(const char* variable) {
  const std::string value = env(variable).value_or("off");
  if (value != "on" && value != "off")
    throw InvalidArgument(str("environment: ", variable, "=\"", printable(value), "\" must be on or off"));
  return value == "on";
}

}  // namespace

Context::Context(Membership membership)
    : membership_(std::move(membership)),
      control_(membership_.control.get(), membership_.size, false),
      debugs_(is_on("LOCKSTEP_DEBUG")),
      failure_(control_),
      sequencer_(control_, membership_.rank, membership_.size),
      stage_(membership_.own->arena, sequencer_, control_, membership_.rank, membership_.size),
      mailbox_(membership_.size),
      recorder_(membership_.trace, {membership_.group_name, membership_.backend_name, membership_.rank,
                                    membership_.size, membership_.all_job_ranks()}) {}

void Context::record_failure(const GroupFailure& failure) {
  if (presence_.has_memory()) failure_.record(failure);
}

void Context::throw_unusable(const std::string& what) const {
  const GroupPlace place = membership_.place();
  presence_.fork_guard().refuse(what, place);
  using State = OwnPresence::State;
  const bool left_before_failure = presence_.state() == State::LEAVING ||
                                   presence_.state() == State::GONE;  // a later failure is not this rank's
  if (left_before_failure || !failed()) throw_left(what, place);
  const GroupFailure failure = failure_.read(rank());
  throw_failure(what, place, failure,
                recorder_.note_failure(failure.text, failure.code, failure.peer, failure.reporter));
}

void Context::leave() {
  presence_.leave(failed());
  // Counts as `finished` for all collectives: after this store this rank reads no data of other ranks any
  // more.
  control_.rank_line(rank()).presence.store(static_cast<std::uint32_t>(Presence::LEFT),
                                            std::memory_order_release);
  control_.ring();
  recorder_.leave();
  go_if_possible();
}

void Context::end_wait() {
  presence_.end_wait();
  go_if_possible();
}

// After a failure the memory stays: the segment of a failed group is never used for anything else.
void Context::go_if_possible() {
  if (!presence_.may_go() || failed()) return;
  presence_.go();
  membership_.own->leave({membership_.control, control_, rank(), size(), stage_.leave()});
}

}  // namespace lockstep::shared
