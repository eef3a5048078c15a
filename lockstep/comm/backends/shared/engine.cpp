#include "lockstep/comm/backends/shared/engine.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/exception_text.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/shared/backoff.h"
#include "lockstep/comm/backends/shared/copies.h"
#include "lockstep/comm/backends/shared/messages.h"
#include "lockstep/comm/backends/shared/reductions.h"
#include "lockstep/comm/group/progress_clock.h"
#include "lockstep/comm/kernels/reduce_kernels.h"
#include "lockstep/os/fork_generation.h"
#include "lockstep/os/process.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t ALL_SLICES = std::numeric_limits<std::size_t>::max();
constexpr std::size_t SHARE_OF_SLICES =
    4;                                  // of each earlier operation, taken by a call that posts another one
constexpr std::size_t KEPT_BLOCKS = 8;  // that were used for staging and may be used again

bool is_on(const char* variable) {
  const std::string value = env(variable).value_or("off");
  if (value != "on" && value != "off")
    throw InvalidArgument(str("environment: ", variable, "=\"", printable(value), "\" must be on or off"));
  return value == "on";
}

}  // namespace

SharedEngine::SharedEngine(Membership membership)
    : membership_(std::move(membership)),
      control_(membership_.control.get(), membership_.size, false),
      fork_generation_(fork_generation()),
      debugs_(is_on("LOCKSTEP_DEBUG")),
      spins_(membership_.size <= cpus_of_ranks.load(std::memory_order_relaxed) ? 200 : 10),
      recorder_(membership_.trace, {membership_.group_name, membership_.backend_name, membership_.rank,
                                    membership_.size, membership_.all_job_ranks()}),
      known_finished_(static_cast<std::size_t>(membership_.size)),
      sent_(static_cast<std::size_t>(membership_.size)),
      inboxes_(static_cast<std::size_t>(membership_.size)) {}

SharedEngine::~SharedEngine() = default;

std::shared_ptr<WorkState> SharedEngine::start(Request request) {
  std::unique_lock lock(mutex);
  const bool is_message = request.verb == Verb::SEND || request.verb == Verb::RECV;
  if (!usable()) {
    throw_unusable(is_message ? std::string(name_of(request.verb)) : describe_own(request, sequence_ + 1));
  }
  std::shared_ptr<Operation> operation;
  recorded_ = {};
  if (is_message) recorded_ = recorder_.start(call_of(request), 0, request.tag);
  if (request.verb == Verb::SEND) {
    operation = std::make_shared<SendOperation>(*this, std::move(request));
  } else if (request.verb == Verb::RECV) {
    operation = std::make_shared<ReceiveOperation>(*this, std::move(request));
  } else {
    try {
      operation = begin_collective(request, lock);
    } catch (...) {
      if (is_member()) recorder_.finish(recorded_, FlightRecorder::FAILED);
      throw;
    }
  }
  if (operation) {
    operation->keep_record(recorded_);
    operation->keep_engine();
    pending_.push_back(operation);
  }
  if (!pending_.empty()) advance_pending(SHARE_OF_SLICES);
  return operation;
}

PostLine& SharedEngine::fill_line(const Call& call, Placement placement, std::size_t offset,
                                  std::size_t bytes) {
  PostLine& mine = control_.post_line(++sequence_, rank());
  mine.finished = finished_;
  mine.call = call;
  mine.offset = offset;
  mine.bytes = bytes;
  mine.placement = placement;
  control_.rank_line(rank()).last.store(pack(sequence_, verb_and_purpose(call)), std::memory_order_relaxed);
  return mine;
}

void SharedEngine::post(const Call& call, Placement placement, std::size_t offset, std::size_t bytes) {
  PostLine& mine = fill_line(call, placement, offset, bytes);
  // Publishes line and block to has_posted(), and is in one order with what this rank then looks at there: of two ranks that
  // post different calls at the same time, at least one sees the other's.
  mine.sequence.store(sequence_, std::memory_order_seq_cst);
  control_.ring_after_seq_cst();
  recorded_ = recorder_.start(call, sequence_);
  fail_point("comm.posted");
}

// The short way of what small calls do most: a barrier, or an all_reduce of what fits into the lines, of ranks that come
// together. The same as an Operation would do, without making one unless somebody is late or disagrees.
SharedEngine::Express SharedEngine::express(const Request& request, const Call& call, std::size_t bytes) {
  const bool fits =
      call.verb == Verb::BARRIER || (call.verb == Verb::ALL_REDUCE && paths().path_of(bytes) == Path::INLINE);
  const std::uint64_t sequence = sequence_ + 1;
  if (!fits || request.async_op || (sequence > SLOTS && !all_finished(sequence - SLOTS)))
    return Express::UNFIT;
  if (bytes > 0) std::memcpy(control_.post_line(sequence, rank()).payload, request.input, bytes);
  PostLine& mine = fill_line(call, bytes > 0 ? Placement::IN_LINE : Placement::NOWHERE, 0, 0);
  // Publishes the line. While the store travels this rank already looks for the others, until it has seen them all or
  // somebody sleeps; so it rings later.
  mine.sequence.store(sequence, std::memory_order_release);
  recorded_ = recorder_.start(call, sequence);
  fail_point("comm.posted");
  RankAddresses<const std::byte> inputs(size());
  const bool together = find_lines(sequence, call, inputs);
  control_.ring();
  if (!together) return Express::POSTED;
  auto* output = static_cast<std::byte*>(request.output);
  if (bytes > 0) reduce(call.dtype, call.op, inputs.all(), {&output, 1}, call.count);
  fail_point("comm.before_finish");
  finish(sequence);
  recorder_.finish(recorded_, FlightRecorder::DONE);
  return Express::DONE;
}

bool SharedEngine::find_lines(std::uint64_t sequence, const Call& call,
                              RankAddresses<const std::byte>& payloads) {
  int spins = spins_;
  for (int r = 0; r < size(); ++r) {
    const PostLine& theirs = control_.post_line(sequence, r);
    while (theirs.sequence.load(std::memory_order_acquire) != sequence) {
      if (--spins < 0) return false;
    }
    if (!agree(call, theirs.call)) return false;
    learn_finished(r, theirs.finished);
    payloads.add(theirs.payload);
  }
  return true;
}

template <typename Verb>
std::shared_ptr<Operation> SharedEngine::begin(Request& request, bool posted,
                                               std::unique_lock<std::mutex>& lock) {
  const bool waits = !request.async_op;
  Verb collective(*this, std::move(request), posted ? sequence_ : sequence_ + 1);
  if (posted) {
    collective.adopt_post();
  } else {
    collective.post(lock);
  }
  collective.keep_record(recorded_);
  if (waits && collective.done_soon(spins_)) return nullptr;
  return std::make_shared<Verb>(std::move(collective));
}

std::shared_ptr<Operation> SharedEngine::begin_collective(Request& request,
                                                          std::unique_lock<std::mutex>& lock) {
  const Call call = call_of(request);
  const Express quick = express(request, call, call.count * size_of(call.dtype));
  if (quick == Express::DONE) return nullptr;
  const bool posted = quick == Express::POSTED;
  switch (request.verb) {
    case Verb::BARRIER: return begin<Barrier>(request, posted, lock);
    case Verb::BROADCAST: return begin<Broadcast>(request, posted, lock);
    case Verb::ALL_REDUCE:
    case Verb::REDUCE: return begin<Reduction>(request, posted, lock);
    case Verb::REDUCE_SCATTER: return begin<ReduceScatter>(request, posted, lock);
    case Verb::ALL_GATHER:
    case Verb::GATHER: return begin<Gather>(request, posted, lock);
    case Verb::SCATTER: return begin<Scatter>(request, posted, lock);
    case Verb::ALL_TO_ALL: return begin<AllToAll>(request, posted, lock);
    case Verb::SEND:
    case Verb::RECV: break;
  }
  throw InternalError("a message is not a collective");
}

void SharedEngine::advance_pending(std::size_t slices) {
  std::erase_if(pending_, [&](const auto& operation) { return operation->advance(slices); });
  if (retired_.size() > KEPT_BLOCKS) reap_retired();
}

std::byte* SharedEngine::block(int rank, std::uint64_t offset, std::size_t bytes) const {
  const auto& memory = membership_.data.at(static_cast<std::size_t>(rank));
  if (offset > memory->size() || bytes > memory->size() - offset) {
    throw InternalError(
        str("shared memory of rank ", rank, ": block of ", bytes, " bytes at ", offset, " is outside"));
  }
  return memory->data() + offset;
}

std::size_t SharedEngine::stage(std::size_t bytes) {
  // A loop stages its tensors in the same, warm blocks.
  const std::size_t wasteful = std::max<std::size_t>(4 * bytes, std::size_t{64} << 10U);
  const auto again = std::find_if(retired_.begin(), retired_.end(), [&](const Retired& block) {
    return block.destination < 0 && block.bytes >= bytes && block.bytes <= wasteful &&
           all_finished(block.number);
  });
  if (again == retired_.end()) {
    reap_retired();
    return arena().allocate(bytes);
  }
  const std::size_t offset = again->offset;
  retired_.erase(again);
  return offset;
}

void SharedEngine::retire(std::uint64_t sequence, std::size_t offset, std::size_t bytes) {
  retired_.push_back({sequence, offset, bytes});
}

void SharedEngine::retire_message(int destination, std::uint64_t number, std::size_t offset,
                                  std::size_t bytes) {
  retired_.push_back({number, offset, bytes, destination});
}

void SharedEngine::finish(std::uint64_t sequence) {
  finished_ahead_ |= std::uint64_t{1} << (sequence - finished_ - 1);
  for (; (finished_ahead_ & 1U) != 0; finished_ahead_ >>= 1U) ++finished_;
  // Behind this rank's last look at the others' lines and blocks, which their owners use again once they see it. Nobody is
  // rung for it here: who waits for a slot may sleep its 10 ms.
  control_.rank_line(rank()).finished.store(finished_, std::memory_order_release);
  prefetch_for_writing(&control_.post_line(sequence_ + 1, rank()));
}

bool SharedEngine::has_finished(int rank, std::uint64_t sequence) {
  auto& known = known_finished_[static_cast<std::size_t>(rank)];
  if (known < sequence) known = control_.rank_line(rank).finished.load(std::memory_order_acquire);
  return known >= sequence || has_left(rank);
}

bool SharedEngine::all_finished(std::uint64_t sequence) {
  for (int r = 0; r < size(); ++r) {
    if (!has_finished(r, sequence)) return false;
  }
  return true;
}

std::optional<std::size_t> SharedEngine::take_window(std::size_t bytes) {
  if (window_in_use_) return std::nullopt;
  if (bytes > window_bytes_) {
    if (window_bytes_ > 0) retire(sequence_, window_, window_bytes_);
    window_bytes_ = 0;
    window_ = arena().allocate(bytes);
    window_bytes_ = bytes;
  }
  window_in_use_ = true;
  return window_;
}

void SharedEngine::help() { membership_.own->help_groups(); }

void SharedEngine::help_this() {
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
  ProgressClock clock(timeout.value_or(membership_.options.timeout),
                      membership_.options.warn_after);  // from the first sleep
  std::uint64_t moved = target.progress();
  Backoff backoff(size());
  const Waiting waiting(*this, lock);
  while (!target.ready()) {
    if (!usable() && !target.ready()) throw_unusable(target.describe());
    if (backoff.has_spun()) {
      // Large data come in pieces, and who sleeps between two of them falls behind.
      if (const std::uint64_t current = target.progress(); current != moved) {
        moved = current;
        backoff.begin_again();
      }
    }
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
    const auto verdict = clock.look(now, target.progress());
    if (verdict == ProgressClock::Verdict::TIMEOUT && !target.ready())
      record_timeout(target, clock.timeout());
    if (verdict == ProgressClock::Verdict::WARN)
      log(LogLevel::WARNING,
          waiting_text(target.describe(), place(), clock.waited(now), who_is_late(target)));
  }
}

// Groups do not survive fork: the child has no mappings (MADV_DONTFORK), so it must not touch them.
bool SharedEngine::is_member() const { return fork_generation() == fork_generation_ && !closed_; }

bool SharedEngine::usable() const { return is_member() && !failed(); }

void Operation::wait(std::optional<std::chrono::nanoseconds> timeout) {
  std::unique_lock lock(engine_->mutex);
  if (state_ == State::PENDING) engine_->wait(lock, *this, timeout);
  if (exception_) std::rethrow_exception(exception_);
}

bool Operation::done_soon(int spins) {
  for (int i = 0; i < spins; ++i) {
    if (advance(ALL_SLICES)) {
      if (exception_) std::rethrow_exception(exception_);
      return true;
    }
    relax_cpu();
  }
  return false;
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
    // Also after a failure: what is complete stays complete. Looked at in this order, because a peer may complete this very
    // operation, return, and fail in something else, all in between.
    const bool was_usable = engine_->usable();
    if (engine_->is_member() && try_advance(slices)) {
      state_ = State::DONE;
      engine_->recorder().finish(ticket_, FlightRecorder::DONE);
    } else if (!was_usable) {
      engine_->throw_unusable(describe());
    }
  } catch (...) {
    exception_ = std::current_exception();
    state_ = State::FAILED;
    if (engine_->is_member()) engine_->recorder().finish(ticket_, FlightRecorder::FAILED);  // not in a fork
    // An error of this rank alone, with a part in hand that nobody else does: the others must not wait for it.
    if (engine_->usable()) {
      engine_->record_failure(given_up(engine_->rank(), describe(), exception_));
    }
    give_up();
  }
  if (state_ != State::PENDING) request_.keep_alive.reset();
  return state_ != State::PENDING;
}

}  // namespace lockstep::shared
