#include "lockstep/comm/backends/shared_engine.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/exception_text.h"
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
      control_(membership_.control.get(), membership_.size, false),
      fork_generation_(fork_generation()),
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

void SharedEngine::retire(std::uint64_t sequence, std::size_t offset) {
  retired_.push_back({sequence, offset});
}

void SharedEngine::retire_message(int destination, std::uint64_t number, std::size_t offset) {
  retired_.push_back({number, offset, destination});
}

void SharedEngine::help() {
  const std::unique_lock lock(mutex, std::try_to_lock);
  if (lock.owns_lock() && usable()) advance_pending(ALL_SLICES);
}

void SharedEngine::reap_retired() { free_finished(retired_, arena(), control_, rank(), size()); }

std::shared_ptr<void> SharedEngine::allocate_shared(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex);
    if (!usable()) throw_unusable("allocate_shared");
  }
  const std::size_t offset = arena().allocate(bytes);
  std::memset(arena().at(offset), 0, bytes);
  return {arena().at(offset), [own = membership_.own, offset](void*) { own->arena.free(offset); }};
}

// Counts the calls that may look at the control segment without the lock.
class SharedEngine::Waiting {
 public:
  Waiting(SharedEngine& engine, std::unique_lock<std::mutex>& lock) : engine_(engine), lock_(lock) {
    ++engine_.waiting_;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    if (!lock_.owns_lock()) lock_.lock();
    if (--engine_.waiting_ == 0 && engine_.closed_) engine_.leave_for_good();
  }

 private:
  SharedEngine& engine_;
  std::unique_lock<std::mutex>& lock_;
};

void SharedEngine::wait(std::unique_lock<std::mutex>& lock, Waitable& target,
                        std::optional<std::chrono::nanoseconds> timeout) {
  const auto patience = timeout.value_or(membership_.options.timeout);
  auto changed = Deadline::Clock::now();
  auto warned = changed;
  std::uint64_t progress = target.progress();
  Backoff backoff(size());
  const Waiting waiting(*this, lock);
  while (!target.ready()) {
    if (!usable() && !target.ready()) throw_unusable(target.describe());
    lock.unlock();
    const bool slept = backoff.pause(control_, [&] {
      const std::lock_guard guard(mutex);
      return failed() || target.ready();
    });
    if (slept) membership_.own->help_groups();
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
    if (left ? !needed : membership_.peers->alive(membership_.world_rank(r))) continue;
    if (target.ready()) return;  // its part was done before it went
    const auto& line = control_.rank_line(r);
    const std::uint64_t posted = line.posted.load(std::memory_order_relaxed);
    const std::string last =
        posted == 0
            ? std::string("it had made no collective call")
            : str("its last collective call was ",
                  name_of(static_cast<Verb>(line.last_verb.load(std::memory_order_relaxed))), " #", posted);
    record_failure(ErrorCode::PEER_LOST,
                   str(describe_peer(r), left ? " has left the group" : " is dead", " while rank ", rank(),
                       " was in ", target.describe(), "; ", last),
                   r);
    return;
  }
}

std::string SharedEngine::describe_peer(int rank) const {
  const int global = membership_.world_rank(rank);
  const std::string detail = membership_.peers->detail(global);
  if (global == rank) return str("rank ", rank, detail.empty() ? "" : " (" + detail + ")");
  return str("rank ", rank, " (rank ", global, " of the world", detail.empty() ? "" : ", ", detail, ")");
}

std::string SharedEngine::own_place() const {
  const int global = membership_.world_rank(rank());
  return str("group \"", group_name(), "\", rank ", rank(), " of ", size(),
             global == rank() ? "" : str(" (rank ", global, " of the world)"));
}

std::string SharedEngine::who_is_late(const Waitable& target) const {
  std::string late;
  for (const int r : target.awaited()) {
    if (!late.empty()) late += ", ";
    const auto& line = control_.rank_line(r);
    const std::uint64_t posted = line.posted.load(std::memory_order_relaxed);
    const bool stopped = membership_.peers->stopped(membership_.world_rank(r));
    late += str(describe_peer(r), stopped ? ", which is stopped (SIGSTOP)" : "");
    if (posted != 0) {
      late +=
          str(" (last collective call: ",
              name_of(static_cast<Verb>(line.last_verb.load(std::memory_order_relaxed))), " #", posted, ")");
    }
  }
  return late.empty() ? "the other ranks to finish their part" : late;
}

void SharedEngine::warn(const Waitable& target, std::chrono::nanoseconds waited) const {
  log(LogLevel::WARNING, str(target.describe(), " on ", own_place(), ": waiting for ", seconds(waited),
                             " s for ", who_is_late(target)));
}

bool SharedEngine::failed() const {
  // What the failure was is read in throw_unusable(), which acquires it.
  return !gone_ && control_.header().failure_state.load(std::memory_order_relaxed) !=
                       static_cast<std::uint32_t>(FailureState::NONE);
}

void SharedEngine::record_failure(ErrorCode code, const std::string& text, int peer) {
  Header& header = control_.header();
  auto expected = static_cast<std::uint32_t>(FailureState::NONE);
  // Only decides who writes the text; WRITTEN publishes it.
  if (header.failure_state.compare_exchange_strong(expected,
                                                   static_cast<std::uint32_t>(FailureState::WRITING),
                                                   std::memory_order_relaxed, std::memory_order_relaxed)) {
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

bool SharedEngine::is_member() const { return fork_generation() == fork_generation_ && !closed_; }

bool SharedEngine::usable() const { return is_member() && !failed(); }

void SharedEngine::throw_unusable(const std::string& what) const {
  const std::string where = str(what, " on ", own_place(), ": ");
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

void SharedEngine::abort(const std::string& reason) {
  const std::lock_guard lock(mutex);
  if (gone_ || fork_generation() != fork_generation_) return;
  record_failure(ErrorCode::ABORTED, str("rank ", rank(), " aborted the group: ", reason));
}

void SharedEngine::close() {
  const std::lock_guard lock(mutex);
  if (closed_ || fork_generation() != fork_generation_) return;
  closed_ = true;
  for (const auto& operation : pending_) operation->give_up();
  pending_.clear();
  // As `finished`, for all collectives: nothing of the others is looked at behind this.
  control_.rank_line(rank()).presence.store(static_cast<std::uint32_t>(Presence::LEFT),
                                            std::memory_order_release);
  control_.ring();
  if (waiting_ == 0) leave_for_good();
}

// A failure stays readable: the segment of a failed group is never used for anything else.
void SharedEngine::leave_for_good() {
  if (gone_ || failed()) return;
  gone_ = true;
  membership_.own->leave({membership_.control, control_, rank(), size(), std::move(retired_)});
  retired_.clear();
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
    // Also after a failure: what is complete stays complete.
    if (engine_->is_member() && try_advance(slices)) {
      state_ = State::DONE;
    } else if (!engine_->usable()) {
      engine_->throw_unusable(describe());
    }
  } catch (...) {
    exception_ = std::current_exception();
    state_ = State::FAILED;
    // An error of this rank alone, with a part in hand that nobody else does: the others must not wait for it.
    if (engine_->usable()) {
      engine_->record_failure(ErrorCode::ABORTED, str("rank ", engine_->rank(), " gave up ", describe(), ": ",
                                                      exception_text(exception_)));
    }
    give_up();
  }
  if (state_ != State::PENDING) request_.keep_alive.reset();
  return state_ != State::PENDING;
}

}  // namespace lockstep::shared
