// How a group ends: what it says when it fails (who is late, who is dead, what was recorded first), and leaving it.
#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/shared/engine.h"
#include "lockstep/os/fork_generation.h"

namespace lockstep::shared {
namespace {

double seconds(std::chrono::nanoseconds span) { return std::chrono::duration<double>(span).count(); }

// Of a wait for something that is none of this group's operations.
class NothingOfTheGroup : public Waitable {
 public:
  bool ready() override { return false; }
  std::uint64_t progress() const override { return 0; }
  std::vector<int> awaited() const override { return {}; }
  std::string describe() const override { return "a wait outside of the group"; }
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
    const std::string call = last_call(r);
    const std::string last =
        call.empty() ? "it had made no collective call" : "its last collective call was " + call;
    record_failure(
        ErrorCode::PEER_LOST,
        str(describe_peer(r), left ? " has left the group" : " is dead", " while rank ", rank(), " was in ",
            target.describe(), "; ", last, left ? target.usual_cause() : std::string()),
        r);
    return;
  }
}

std::string SharedEngine::describe_peer(int rank) const {
  const int global = membership_.job_rank(rank);
  const std::string detail = membership_.peers->detail(membership_.world_rank(rank));
  if (global == rank) return str("rank ", rank, detail.empty() ? "" : " (" + detail + ")");
  return str("rank ", rank, " (rank ", global, " of the world", detail.empty() ? "" : ", ", detail, ")");
}

std::string SharedEngine::own_place() const {
  const int global = membership_.job_rank(rank());
  return str("group \"", group_name(), "\", rank ", rank(), " of ", size(),
             global == rank() ? "" : str(" (rank ", global, " of the world)"));
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
  record_failure(ErrorCode::TIMEOUT,
                 str("no progress for ", seconds(patience), " s, waiting for ", who_is_late(target),
                     target.usual_cause()),
                 stopped != awaited.end() ? *stopped
                 : awaited.empty()        ? -1
                                          : awaited.front());
}

std::string SharedEngine::who_is_late(const Waitable& target) const {
  constexpr std::size_t MOST_NAMED = 8;
  std::string late;
  const std::vector<int> awaited = target.awaited();
  for (std::size_t i = 0; i < awaited.size(); ++i) {
    if (i == MOST_NAMED) return late + str(" and ", awaited.size() - i, " more");
    const int r = awaited[i];
    if (!late.empty()) late += ", ";
    const bool stopped = membership_.peers->stopped(membership_.world_rank(r));
    late += str(describe_peer(r), stopped ? ", which is stopped (SIGSTOP)" : "");
    if (const std::string call = last_call(r); !call.empty())
      late += str(" (last collective call: ", call, ")");
  }
  return late.empty() ? "the other ranks to finish their part" : late;
}

void SharedEngine::warn(const Waitable& target, std::chrono::nanoseconds waited) const {
  log(LogLevel::WARNING, str(target.describe(), " on ", own_place(), ": waiting for ", seconds(waited),
                             " s for ", who_is_late(target)));
}

void SharedEngine::record_failure(ErrorCode code, const std::string& text, int peer) {
  Header& header = control_.header();
  auto expected = static_cast<std::uint32_t>(FailureState::NONE);
  // Decides who writes the text, which WRITTEN publishes, and publishes what was complete by now (failed() acquires it).
  if (header.failure_state.compare_exchange_strong(expected,
                                                   static_cast<std::uint32_t>(FailureState::WRITING),
                                                   std::memory_order_release, std::memory_order_relaxed)) {
    header.failure_code = static_cast<std::uint32_t>(code);
    header.failure_peer = peer;
    header.failure_reporter = rank();
    const std::size_t length = std::min(text.size(), sizeof(header.failure_text) - 1);
    std::memcpy(header.failure_text, text.data(), length);
    header.failure_text[length] = '\0';
    header.failure_state.store(static_cast<std::uint32_t>(FailureState::WRITTEN), std::memory_order_release);
  }
  control_.ring();
}

void SharedEngine::abort(const std::string& reason) {
  const std::lock_guard lock(mutex);
  if (gone_ || fork_generation() != fork_generation_) return;
  record_failure(ErrorCode::ABORTED, str("rank ", rank(), " aborted the group: ", reason));
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
  const std::string where = str(what, " on ", own_place(), ": ");
  if (fork_generation() != fork_generation_) {
    throw Aborted(str(where, IS_A_FORK));
  }
  if (closed_unfailed_ || !failed())
    throw Aborted(where + "this rank has left the group (destroy_process_group)");
  constexpr const char* ADVICE =
      "; the group is closed: destroy_process_group(), then init_process_group() to start anew";
  const Header& header = control_.header();
  // The reporter needs nanoseconds between the two states; one that died in between never gets there.
  const Deadline deadline = Deadline::in(std::chrono::milliseconds(100));
  while (header.failure_state.load(std::memory_order_acquire) !=
         static_cast<std::uint32_t>(FailureState::WRITTEN)) {
    if (deadline.expired()) throw PeerLost(where + "a rank died while it reported a failure" + ADVICE, -1);
  }
  std::string text(header.failure_text, strnlen(header.failure_text, sizeof(header.failure_text)));
  if (header.failure_reporter != rank()) text += str(" (found by rank ", header.failure_reporter, ")");
  const std::string& trace =
      recorder_.note_failure(text, static_cast<ErrorCode>(header.failure_code), header.failure_peer,
                             static_cast<int>(header.failure_reporter));
  throw_error(static_cast<ErrorCode>(header.failure_code), where + text + ADVICE + trace,
              header.failure_peer);
}

}  // namespace lockstep::shared
