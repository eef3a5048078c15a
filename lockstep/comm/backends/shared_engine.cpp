#include "lockstep/comm/backends/shared_engine.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/backoff.h"
#include "lockstep/comm/backends/shared_collective.h"
#include "lockstep/comm/backends/shared_messages.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t ALL_SLICES = std::numeric_limits<std::size_t>::max();
constexpr std::size_t SHARE_OF_SLICES =
    4;  // of each earlier operation, taken by a call that posts another one

// Groups do not survive fork: the child has no mappings (MADV_DONTFORK), so it must not touch them.
std::atomic<unsigned> forks{0};
unsigned fork_generation() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

double seconds(std::chrono::nanoseconds span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

SharedEngine::SharedEngine(Membership membership)
    : membership_(std::move(membership)),
      control_(membership_.control->data(), membership_.size, false),
      fork_generation_(fork_generation()),
      arena_(membership_.data.at(static_cast<std::size_t>(membership_.rank))),
      sent_(static_cast<std::size_t>(membership_.size)),
      inboxes_(static_cast<std::size_t>(membership_.size)) {}

SharedEngine::~SharedEngine() = default;

std::shared_ptr<WorkState> SharedEngine::start(Request request) {
  std::unique_lock lock(mutex);
  std::shared_ptr<Operation> operation;
  if (!usable()) {
    const bool message = request.verb == Verb::SEND || request.verb == Verb::RECV;
    throw_unusable(message ? std::string(name_of(request.verb))
                           : str(name_of(request.verb), " #", sequence_ + 1));
  }
  if (!retired_.empty()) reap_retired();  // so that a loop stages its tensors in the same, warm blocks
  if (request.verb == Verb::SEND) {
    operation = std::make_shared<SendOperation>(shared_from_this(), std::move(request));
  } else if (request.verb == Verb::RECV) {
    operation = std::make_shared<ReceiveOperation>(shared_from_this(), std::move(request));
  } else {
    auto collective = make_collective(shared_from_this(), std::move(request), sequence_ + 1);
    collective->post(lock);
    operation = std::move(collective);
  }
  pending_.push_back(operation);
  advance_pending(SHARE_OF_SLICES);
  return operation;
}

void SharedEngine::advance_pending(std::size_t slices) {
  std::erase_if(pending_, [&](const auto& operation) { return operation->advance(slices); });
  if (!retired_.empty()) reap_retired();
}

std::byte* SharedEngine::block(int rank, std::uint64_t offset, std::size_t bytes) const {
  const auto& memory = membership_.data.at(static_cast<std::size_t>(rank));
  if (offset > memory->size() || bytes > memory->size() - offset) {
    throw InternalError(
        str("shared memory of rank ", rank, ": block of ", bytes, " bytes at ", offset, " is outside"));
  }
  return memory->data() + offset;
}

bool SharedEngine::has_left(int rank) const {
  return control_.rank_line(rank).presence.load(std::memory_order_acquire) ==
         static_cast<std::uint32_t>(Presence::LEFT);
}

bool SharedEngine::all_finished(std::uint64_t sequence) const {
  for (int r = 0; r < size(); ++r) {
    if (control_.post_line(sequence, r).finished.load(std::memory_order_acquire) < sequence && !has_left(r))
      return false;
  }
  return true;
}

void SharedEngine::retire(std::uint64_t sequence, std::size_t offset) {
  retired_.push_back({sequence, offset});
}

void SharedEngine::retire_message(int destination, std::uint64_t number, std::size_t offset) {
  retired_.push_back({number, offset, destination});
}

bool SharedEngine::is_over(const Retired& block) const {
  if (block.destination < 0) return all_finished(block.number);
  const auto& letter = control_.letter(rank(), block.destination, block.number);
  return letter.taken.load(std::memory_order_acquire) > block.number;
}

void SharedEngine::reap_retired() {
  std::erase_if(retired_, [&](const Retired& block) {
    if (!is_over(block)) return false;
    arena_.free(block.offset);
    return true;
  });
}

std::shared_ptr<void> SharedEngine::allocate_shared(std::size_t bytes) {
  const std::lock_guard lock(mutex);
  if (!usable()) throw_unusable("allocate_shared");
  free_returned();
  const std::size_t offset = arena_.allocate(bytes);
  std::memset(arena_.at(offset), 0, bytes);
  return {arena_.at(offset), [self = shared_from_this(), offset](void*) {
            const std::lock_guard guard(self->returned_mutex_);
            self->returned_.push_back(offset);
          }};
}

// Not after a failure: a peer may still be writing to a block, so the segment is not used again.
void SharedEngine::free_returned() {
  const std::lock_guard guard(returned_mutex_);
  for (const std::size_t offset : returned_) arena_.free(offset);
  returned_.clear();
}

void SharedEngine::wait(std::unique_lock<std::mutex>& lock, Waitable& target,
                        std::optional<std::chrono::nanoseconds> timeout) {
  const auto patience = timeout.value_or(membership_.options.timeout);
  auto changed = Deadline::Clock::now();
  auto warned = changed;
  std::uint64_t progress = target.progress();
  Backoff backoff(size());
  while (!target.ready()) {
    if (!usable()) throw_unusable(target.describe());
    lock.unlock();
    const bool slept = backoff.pause(control_, [&] {
      const std::lock_guard guard(mutex);
      return failed() || target.ready();
    });
    lock.lock();
    if (!slept) continue;
    check_peers(target);
    const auto now = Deadline::Clock::now();
    if (const std::uint64_t current = target.progress(); current != progress) {
      progress = current;
      changed = warned = now;
    } else if (now - changed >= patience && !target.ready()) {
      record_failure(ErrorCode::TIMEOUT,
                     str("no progress for ", seconds(patience), " s, waiting for ", who_is_late(target)));
    } else if (now - warned >= membership_.options.warn_after) {
      warn(target, now - changed);
      warned = now;
    }
  }
}

void SharedEngine::check_peers(Waitable& target) {
  const std::vector<int> awaited = target.awaited();
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const bool left = has_left(r);
    const bool needed = std::find(awaited.begin(), awaited.end(), r) != awaited.end();
    if (left ? !needed : peers().alive(r)) continue;
    if (target.ready()) return;  // its part was done before it went
    const auto& line = control_.rank_line(r);
    const std::uint64_t posted = line.posted.load(std::memory_order_relaxed);
    const std::string last = posted == 0
                                 ? std::string("it had made no collective call")
                                 : str("its last collective call was ",
                                       name_of(static_cast<Verb>(line.last_verb.load())), " #", posted);
    record_failure(ErrorCode::PEER_LOST,
                   str(peers().describe(r), left ? " has left the group" : " is dead", " while rank ", rank(),
                       " was in ", target.describe(), "; ", last),
                   r);
    return;
  }
}

std::string SharedEngine::who_is_late(const Waitable& target) const {
  std::string late;
  for (const int r : target.awaited()) {
    if (!late.empty()) late += ", ";
    const auto& line = control_.rank_line(r);
    const std::uint64_t posted = line.posted.load(std::memory_order_relaxed);
    late += str(peers().describe(r), peers().stopped(r) ? ", which is stopped (SIGSTOP)" : "");
    if (posted != 0) {
      late += str(" (last collective call: ", name_of(static_cast<Verb>(line.last_verb.load())), " #", posted,
                  ")");
    }
  }
  return late.empty() ? "the other ranks to finish their part" : late;
}

void SharedEngine::warn(const Waitable& target, std::chrono::nanoseconds waited) const {
  log(LogLevel::WARNING, str(target.describe(), " on group \"", group_name(), "\", rank ", rank(), " of ",
                             size(), ": waiting for ", seconds(waited), " s for ", who_is_late(target)));
}

bool SharedEngine::failed() const {
  return control_.header().failure_state.load(std::memory_order_acquire) !=
         static_cast<std::uint32_t>(FailureState::NONE);
}

void SharedEngine::record_failure(ErrorCode code, const std::string& text, int peer) {
  Header& header = control_.header();
  auto expected = static_cast<std::uint32_t>(FailureState::NONE);
  if (header.failure_state.compare_exchange_strong(expected,
                                                   static_cast<std::uint32_t>(FailureState::WRITING))) {
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

bool SharedEngine::usable() const { return fork_generation() == fork_generation_ && !failed() && !closed_; }

void SharedEngine::throw_unusable(const std::string& what) const {
  const std::string where =
      str(what, " on group \"", group_name(), "\", rank ", rank(), " of ", size(), ": ");
  if (fork_generation() != fork_generation_) {
    throw Aborted(where +
                  "this process is a fork of the one that joined the group; start ranks with exec, or call "
                  "init_process_group() only after fork");
  }
  if (!failed()) throw Aborted(where + "this rank has left the group (destroy_process_group)");
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
  throw_error(static_cast<ErrorCode>(header.failure_code), where + text + ADVICE, header.failure_peer);
}

std::shared_ptr<Backend> SharedEngine::split(const std::vector<std::vector<int>>&, const std::string&,
                                             const GroupOptions&) {
  throw InternalError("not yet");
}

void SharedEngine::abort(const std::string& reason) {
  record_failure(ErrorCode::ABORTED, str("rank ", rank(), " aborted the group: ", reason));
}

void SharedEngine::close() {
  const std::lock_guard lock(mutex);
  if (closed_ || fork_generation() != fork_generation_) return;
  closed_ = true;
  pending_.clear();
  control_.rank_line(rank()).presence.store(static_cast<std::uint32_t>(Presence::LEFT),
                                            std::memory_order_release);
  control_.ring();
}

void Operation::wait(std::optional<std::chrono::nanoseconds> timeout) {
  std::unique_lock lock(engine_->mutex);
  if (state_ == State::PENDING) engine_->wait(lock, *this, timeout);
  if (exception_) std::rethrow_exception(exception_);
}

bool Operation::poll() {
  const std::lock_guard lock(engine_->mutex);
  if (state_ == State::PENDING) engine_->advance_pending(ALL_SLICES);
  return advance(ALL_SLICES);  // also when it is no longer in the list: the group was closed
}

std::exception_ptr Operation::exception() const {
  const std::lock_guard lock(engine_->mutex);
  return exception_;
}

bool Operation::ready() {
  if (state_ == State::PENDING) engine_->advance_pending(ALL_SLICES);
  return state_ != State::PENDING;
}

bool Operation::advance(std::size_t slices) {
  if (state_ != State::PENDING) return true;
  try {
    if (try_advance(slices)) {
      state_ = State::DONE;
    } else if (!engine_->usable()) {
      engine_->throw_unusable(describe());
    }
  } catch (...) {
    exception_ = std::current_exception();
    state_ = State::FAILED;
  }
  if (state_ != State::PENDING) request_.keep_alive.reset();
  return state_ != State::PENDING;
}

}  // namespace lockstep::shared
