#include "lockstep/job/stop_signals.h"

#include <algorithm>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/job/job.h"
#include "lockstep/os/signal_flags.h"

namespace lockstep {
namespace {

constexpr std::int64_t RANKS = std::int64_t{1} << 32;

// A rank's state as one number, of which MAX keeps the most important: signals earlier in the list first,
// then lower ranks. 0 means no signal. `place` counts from 0.
std::int64_t pack(std::size_t place, std::size_t places, int rank) {
  return static_cast<std::int64_t>(places - place) * RANKS + (RANKS - 1 - rank);
}

StopRequest unpack(std::int64_t said, const std::vector<int>& signals) {
  const auto place = signals.size() - static_cast<std::size_t>(said / RANKS);
  return {signals.at(place), static_cast<int>(RANKS - 1 - said % RANKS)};
}

}  // namespace

StopSignals::StopSignals(std::vector<int> signals, StopSignalsOptions options)
    : signals_(std::move(signals)), options_(std::move(options)) {
  if (signals_.empty()) throw InvalidArgument("StopSignals: no signals; SIGTERM and SIGUSR1 are usual");
  if (options_.every < 1)
    throw InvalidArgument(str("StopSignals: every is ", options_.every, ", and must be at least 1"));
  flags_ = std::make_unique<SignalFlags>(signals_);
}

StopSignals::~StopSignals() {
  if (agreed_ || requested_here()) flags_->keep_handler();
}

std::optional<int> StopSignals::requested_here() const {
  const auto found = std::find_if(signals_.begin(), signals_.end(), SignalFlags::is_raised);
  return found == signals_.end() ? std::nullopt : std::optional(*found);
}

std::optional<StopRequest> StopSignals::requested_on_any_rank() {
  if (agreed_) return agreed_;
  const auto group = options_.group     ? options_.group
                     : is_initialized() ? std::optional(world())
                                        : std::nullopt;
  if (group) group->require_member("StopSignals");
  if (!group || group->size() == 1) {
    const auto here = requested_here();
    return here ? std::optional(StopRequest{*here, 0}) : std::nullopt;
  }
  if (++calls_ % options_.every != 0) return std::nullopt;
  const auto found = std::find_if(signals_.begin(), signals_.end(), SignalFlags::is_raised);
  std::int64_t said = 0;
  if (found != signals_.end())
    said = pack(static_cast<std::size_t>(found - signals_.begin()), signals_.size(), group->rank());
  const Acting acting(Purpose::STOP_SIGNALS);
  comm::all_reduce(*group, std::span(&said, 1), ReduceOp::MAX);
  if (said != 0) agreed_ = unpack(said, signals_);
  return agreed_;
}

void StopSignals::clear() {
  const auto signal = agreed_ ? std::optional(agreed_->signal) : requested_here();
  if (signal) SignalFlags::clear(*signal);
  agreed_.reset();
}

}  // namespace lockstep
