// How a group ends: what it says when it fails (who is late, who is dead, what was recorded first), and leaving it.
#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/shared/engine.h"
#include "lockstep/os/fork_generation.h"

namespace lockstep::shared {
namespace {

// Of a wait for something that is none of this group's operations.
class NothingOfTheGroup : public Waitable {
 public:
  bool ready() override { return false; }
  std::uint64_t progress() const override { return 0; }
  std::vector<int> awaited() const override { return {}; }
  std::string describe() const override { return A_WAIT_OUTSIDE; }
};

}  // namespace

void SharedEngine::check_peers() {
  const std::lock_guard lock(mutex);
  NothingOfTheGroup nothing;
  if (usable()) check_peers(nothing);
  if (!usable()) throw_unusable(nothing.describe());
}

void SharedEngine::check_peers(Waitable& target) {
  const std::vector<int> awaited = target.awaited();
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const bool left = has_left(r);
    const bool needed = std::find(awaited.begin(), awaited.end(), r) != awaited.end();
    if (left ? !needed : membership_.peers->alive(membership_.world_rank(r))) continue;
    if (target.ready()) return;  // its part was done before it went
    const LostPeer lost{
        .rank = r, .description = describe_peer(r), .has_left = left, .last_call = last_call(r)};
    record_failure(peer_lost(rank(), lost, target.describe(), {}, target.usual_cause()));
    return;
  }
}

std::string SharedEngine::describe_peer(int rank) const {
  const int global = membership_.job_rank(rank);
  const std::string detail = membership_.peers->detail(membership_.world_rank(rank));
  if (global == rank) return str("rank ", rank, detail.empty() ? "" : " (" + detail + ")");
  return str("rank ", rank, " (rank ", global, " of the world", detail.empty() ? "" : ", ", detail, ")");
}

GroupPlace SharedEngine::place() const {
  return {.group = group_name(), .rank = rank(), .size = size(), .world_rank = membership_.job_rank(rank())};
}

std::string SharedEngine::last_call(int rank) const {
  const std::uint64_t last = control_.rank_line(rank).last.load(std::memory_order_relaxed);
  if (last == 0) return {};
  const std::uint64_t sequence = last >> NUMBER_BITS;
  const auto [verb, purpose] = verb_and_purpose_of(number_for(last, sequence));
  return describe_last(verb, purpose, sequence);
}

void SharedEngine::record_timeout(const Waitable& target, std::chrono::nanoseconds patience) {
  const std::vector<int> awaited = target.awaited();
  const auto stopped = std::find_if(awaited.begin(), awaited.end(), [this](int r) {
    return membership_.peers->stopped(membership_.world_rank(r));
  });
  const int peer = stopped != awaited.end() ? *stopped : awaited.empty() ? -1 : awaited.front();
  record_failure(timed_out(rank(), patience, who_is_late(target), target.usual_cause(), peer));
}

std::string SharedEngine::who_is_late(const Waitable& target) const {
  return list_of_late(target.awaited(), [this](int r) {
    const bool stopped = membership_.peers->stopped(membership_.world_rank(r));
    const std::string call = last_call(r);
    return str(describe_peer(r), stopped ? ", which is stopped (SIGSTOP)" : "",
               call.empty() ? "" : str(" (last collective call: ", call, ")"));
  });
}

void SharedEngine::record_failure(const GroupFailure& failure) {
  Header& header = control_.header();
  auto expected = static_cast<std::uint32_t>(FailureState::NONE);
  // Decides which rank writes the text, which WRITTEN publishes, and publishes what was complete by now (failed() acquires it).
  if (header.failure_state.compare_exchange_strong(expected,
                                                   static_cast<std::uint32_t>(FailureState::WRITING),
                                                   std::memory_order_release, std::memory_order_relaxed)) {
    header.failure_code = static_cast<std::uint32_t>(failure.code);
    header.failure_kind = static_cast<std::uint32_t>(failure.kind);
    header.failure_peer = failure.peer;
    header.failure_reporter = failure.reporter;
    const std::size_t length = std::min(failure.text.size(), sizeof(header.failure_text) - 1);
    std::memcpy(header.failure_text, failure.text.data(), length);
    header.failure_text[length] = '\0';
    header.failure_state.store(static_cast<std::uint32_t>(FailureState::WRITTEN), std::memory_order_release);
  }
  control_.ring();
}

void SharedEngine::abort(const std::string& reason, ErrorCode code, int peer) {
  const std::lock_guard lock(mutex);
  if (gone_ || fork_generation() != fork_generation_) return;
  record_failure(aborted(rank(), reason, code, peer));
}

void SharedEngine::close() {
  const std::lock_guard lock(mutex);
  if (closed_ || fork_generation() != fork_generation_) return;
  closed_ = true;
  closed_unfailed_ = !failed();
  for (const auto& operation : pending_) operation->give_up();
  pending_.clear();
  // As `finished`, for all collectives: nothing of the others is looked at behind this.
  control_.rank_line(rank()).presence.store(static_cast<std::uint32_t>(Presence::LEFT),
                                            std::memory_order_release);
  control_.ring();
  recorder_.leave();
  if (waiting_ == 0) leave_for_good();
}

// A failure stays readable: the segment of a failed group is never used for anything else.
void SharedEngine::leave_for_good() {
  if (gone_ || failed()) return;
  gone_ = true;
  if (window_bytes_ > 0) retire(sequence_, window_, window_bytes_);
  membership_.own->leave({membership_.control, control_, rank(), size(), std::move(retired_)});
  retired_.clear();
}

void SharedEngine::throw_unusable(const std::string& what) const {
  if (fork_generation() != fork_generation_) throw_forked(what, place());
  if (closed_unfailed_ || !failed()) throw_left(what, place());
  const GroupFailure failure = failure_of_group();
  throw_failure(what, place(), failure,
                recorder_.note_failure(failure.text, failure.code, failure.peer, failure.reporter));
}

// The reporter needs nanoseconds between the two states; one that died in between never gets there.
GroupFailure SharedEngine::failure_of_group() const {
  const Header& header = control_.header();
  const Deadline deadline = Deadline::in(std::chrono::milliseconds(100));
  while (header.failure_state.load(std::memory_order_acquire) !=
         static_cast<std::uint32_t>(FailureState::WRITTEN)) {
    if (deadline.expired())
      return {ErrorCode::PEER_LOST, "a rank died while it reported a failure", -1, rank()};
  }
  return {static_cast<ErrorCode>(header.failure_code),
          std::string(header.failure_text, strnlen(header.failure_text, sizeof(header.failure_text))),
          header.failure_peer, header.failure_reporter, static_cast<MismatchKind>(header.failure_kind & 1U)};
}

}  // namespace lockstep::shared
