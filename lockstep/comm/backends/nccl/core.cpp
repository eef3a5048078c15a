#include "lockstep/comm/backends/nccl/core.h"

#include <algorithm>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/group/progress_clock.h"

namespace lockstep::nccl {
namespace {

using State = Operation::State;

bool is_of_group(ErrorCode code) {  // and not of a call alone
  return code == ErrorCode::MISMATCH || code == ErrorCode::TIMEOUT || code == ErrorCode::PEER_LOST ||
         code == ErrorCode::BACKEND || code == ErrorCode::ABORTED;
}

}  // namespace

Core::Core(Membership membership, Channels channels)
    : membership_(std::move(membership)),
      channels_(std::move(channels)),
      recorder_(membership_.hosts->trace(), {membership_.name, std::string(membership_.backend), rank(),
                                             size(), membership_.world_ranks}) {}

void Core::begin() {
  for (std::size_t i = 0; i < channels_.size(); ++i)
    watchers_[i] = std::thread([self = shared_from_this(), i] { self->watch(self->channels_[i]); });
}

GroupPlace Core::place() const {
  const int world_rank =
      membership_.world_ranks.empty() ? rank() : membership_.world_ranks.at(static_cast<std::size_t>(rank()));
  return {.group = membership_.name, .rank = rank(), .size = size(), .world_rank = world_rank};
}

// ---- calls

std::shared_ptr<Operation> Core::start(Request&& request) {
  const std::lock_guard launching(launching_);
  const bool is_message = request.verb == Verb::SEND || request.verb == Verb::RECV;
  Channel& channel = channels_[is_message ? MESSAGES : COLLECTIVES];
  const auto operation =
      std::make_shared<Operation>(shared_from_this(), std::move(request), channel.number + 1);
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || ending_) throw_unusable(operation->describe());
    ++channel.number;
    operation->ticket_ = recorder_.start(operation->mine_.call(), is_message ? 0 : channel.number);
    if (is_message) queued_.push_back(operation);
  }
  try {
    operation->announce(*membership_.hosts);
    if (!is_message) launch(channel, {operation});
  } catch (const std::exception&) {
    fail_with(std::current_exception());
    std::unique_lock lock(mutex_);
    await_abort(lock);
    fail_operation(*operation);
    std::rethrow_exception(operation->exception_);
  }
  return operation;
}

Patience Core::patience() const {
  return {Deadline::in(membership_.options.timeout), [this] { membership_.hosts->check_peers(); }};
}

// Several are messages, which go as one.
std::vector<Stage> Core::stages_of_all(const std::vector<std::shared_ptr<Operation>>& operations) const {
  if (operations.size() == 1)
    return stages_of(operations.front()->request(), rank(), size(), membership_.grid);
  Stage one;
  for (const auto& operation : operations) {
    const auto more = steps_of(operation->request(), rank(), size());
    one.steps.insert(one.steps.end(), more.begin(), more.end());
  }
  return {std::move(one)};
}

void Core::launch(Channel& channel, const std::vector<std::shared_ptr<Operation>>& operations) {
  const OnDevice here(streams(), membership_.device);
  streams().wait(channel.lanes->main(), streams().record(nullptr));
  channel.lanes->launch(stages_of_all(operations), patience());
  const DeviceStreams::Event end = streams().record(channel.lanes->main());
  {
    const std::lock_guard lock(mutex_);
    for (const auto& operation : operations) {
      if (is_told_ || ending_) fail_operation(*operation);
      if (is_over(*operation)) continue;
      operation->end_ = end;
      operation->state_ = State::RUNNING;
      channel.running.push_back(operation);
    }
  }
  changed_.notify_all();
}

void Core::launch_messages() {
  const std::lock_guard launching(launching_);
  std::vector<std::shared_ptr<Operation>> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(queued_);
  }
  if (messages.empty()) return;
  try {
    launch(channels_[MESSAGES], messages);
  } catch (const std::exception&) {
    fail_with(std::current_exception());
    std::unique_lock lock(mutex_);
    await_abort(lock);
    for (const auto& message : messages) fail_operation(*message);
  }
}

// ---- waiting

void Core::wait(Operation& operation, std::optional<std::chrono::nanoseconds> timeout) {
  launch_messages();
  std::unique_lock lock(mutex_);
  if (!blocks() && !timeout) {
    if (operation.state_ == State::RUNNING) {
      const OnDevice here(streams(), membership_.device);
      streams().wait(nullptr, operation.end_);
    }
  } else {
    const Deadline until = timeout ? Deadline::in(*timeout) : Deadline::never();
    if (!wait_until(changed_, lock, until, [&] { return is_over(operation); })) {
      lock.unlock();
      const double seconds = std::chrono::duration<double>(*timeout).count();
      fail(ErrorCode::TIMEOUT, str(operation.describe(), " is not over after ", seconds, " s"));
      lock.lock();
    }
  }
  if (operation.exception_) std::rethrow_exception(operation.exception_);
}

bool Core::poll(Operation& operation) {
  launch_messages();
  const std::lock_guard lock(mutex_);
  return is_over(operation);
}

std::exception_ptr Core::exception_of(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  return operation.exception_;
}

// ---- the watchers

void Core::watch(Channel& channel) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || (!failure_ && !channel.running.empty()); });
    if (ending_) return;
    std::shared_ptr<Operation> operation = channel.running.front();
    lock.unlock();
    std::shared_ptr<void> released;
    try {
      operation->agree();
      await_device(channel, *operation);
      lock.lock();
    } catch (const std::exception&) {  // libtorch's streams throw what CUDA says
      fail_with(std::current_exception());
      lock.lock();
    }
    if (operation->state_ == State::RUNNING && !failure_) {
      channel.running.pop_front();
      operation->state_ = State::DONE;
      recorder_.finish(operation->ticket_, FlightRecorder::DONE);
      released = std::move(operation->request_.keep_alive);
    }
    lock.unlock();
    changed_.notify_all();
    released.reset();  // it may be the last, and somebody's destructor
    operation.reset();
    lock.lock();
  }
}

std::exception_ptr Core::failure_of_hosts() const {
  try {
    membership_.hosts->check_peers();
    return nullptr;
  } catch (const Error&) {
    return std::current_exception();
  }
}

// NCCL and the device tell nothing unless they are asked, and of progress nothing at all. An operation that
// all ranks have called may end although one has failed since: it is given a moment for that.
void Core::await_device(Channel& channel, const Operation& operation) {
  constexpr int TURNS = 100;
  constexpr std::uint64_t NO_PROGRESS = 0;
  constexpr std::chrono::microseconds SHORTEST{20};
  constexpr std::chrono::microseconds LONGEST{1000};
  constexpr std::chrono::milliseconds LAST_MOMENT{200};
  ProgressClock clock(membership_.options.timeout, membership_.options.warn_after);
  clock.look(RunningClock::now(), NO_PROGRESS);
  auto pause = SHORTEST;
  std::exception_ptr lost;
  RunningClock::time_point lost_at;
  for (int turn = 0; !streams().is_done(operation.end_); ++turn) {
    if (turn < TURNS) {
      std::this_thread::yield();
      continue;
    }
    channel.lanes->check();
    const auto now = RunningClock::now();
    if (!lost) {
      lost = failure_of_hosts();
      lost_at = now;
    }
    if (lost && now - lost_at >= LAST_MOMENT) std::rethrow_exception(lost);
    const auto verdict = clock.look(now, NO_PROGRESS);
    if (verdict == ProgressClock::Verdict::TIMEOUT)
      throw Timeout(unfinished(operation, clock.waited(now)) +
                    (operation.is_message() ? "; messages that wait for each other must be started together "
                                              "(batch_isend_irecv), or before any of them is waited for"
                                            : ", though all ranks have called it"));
    if (verdict == ProgressClock::Verdict::WARN)
      log(LogLevel::WARNING,
          str("group \"", membership_.name, "\": ", unfinished(operation, clock.waited(now))));
    nap(pause);
    pause = std::min(LONGEST, pause * 2);
  }
}

std::string Core::unfinished(const Operation& operation, std::chrono::nanoseconds waited) const {
  return str("NCCL has not finished ", operation.describe(), " on rank ", rank(), " after ",
             std::chrono::duration<double>(waited).count(), " s");
}

// ---- the end

void Core::throw_unusable(const std::string& what) const {
  if (!failure_) throw_left(what, place());
  throw_failure(what, place(), *failure_);
}

std::exception_ptr Core::failure_of(const std::string& what) const {
  try {
    throw_unusable(what);
  } catch (...) {
    return std::current_exception();
  }
}

void Core::fail_with(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& lost) {
    fail(lost.code(), lost.what(), lost.peer());
  } catch (const Error& other) {
    fail(other.code(), other.what());
  } catch (const std::exception& other) {
    fail(ErrorCode::BACKEND, other.what());
  }
}

// With the lock. Until then another thread's failure may leave NCCL at work on the caller's memory.
void Core::await_abort(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return is_told_ || ending_; });
}

// With the lock.
void Core::fail_operation(Operation& operation) {
  if (is_over(operation)) return;
  operation.state_ = State::FAILED;
  operation.exception_ = failure_of(operation.describe());
  recorder_.finish(operation.ticket_, FlightRecorder::FAILED);
}

// With the lock.
void Core::fail_all() {
  for (const auto& message : queued_) fail_operation(*message);
  queued_.clear();
  for (const auto& channel : channels_) {
    for (const auto& operation : channel.running) fail_operation(*operation);
  }
}

void Core::fail(ErrorCode code, const std::string& text, int peer) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || ending_) return;
    failure_ = GroupFailure{code, text, peer, rank()};
    recorder_.note_failure(text, code, peer, rank());
  }
  // First the others: whoever here is told may leave at once. Who waits in the part for CPU memory waits for
  // a rank that calls no more.
  membership_.hosts->abort(text, code, peer);
  membership_.cpu->abort(text, code, peer);
  for (const auto& channel : channels_) channel.lanes->abort();
  {
    const std::lock_guard lock(mutex_);
    is_told_ = true;
    fail_all();
  }
  changed_.notify_all();
}

void Core::check_peers() {
  try {
    membership_.hosts->check_peers();
  } catch (const Error&) {
    fail_with(std::current_exception());
  }
  const std::lock_guard lock(mutex_);
  if (failure_ || ending_) throw_unusable(A_WAIT_OUTSIDE);
}

void Core::require_usable(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (failure_ || ending_) throw_unusable(what);
}

void Core::rethrow_of_cpu(const std::string& what) {
  try {
    throw;
  } catch (const Error& error) {
    if (is_of_group(error.code())) fail_with(std::current_exception());
    if (error.code() == ErrorCode::ABORTED) require_usable(what);
    throw;
  }
}

void Core::end() {
  constexpr std::chrono::seconds MOMENT{1};
  {
    std::unique_lock lock(mutex_);
    if (ending_) return;
    // What has been called and agreed is about to end; what others never called is not.
    wait_until(changed_, lock, Deadline::in(MOMENT), [&] {
      return failure_ ||
             std::all_of(channels_.begin(), channels_.end(), [](const auto& c) { return c.running.empty(); });
    });
    changed_.wait(lock, [&] { return !failure_ || is_told_; });
    ending_ = true;
    fail_all();
    recorder_.leave();
  }
  changed_.notify_all();
  membership_.hosts->close();
  for (const auto& channel : channels_) channel.lanes->abort();
  for (std::thread& watcher : watchers_) {
    if (watcher.get_id() == std::this_thread::get_id()) {
      watcher.detach();
    } else if (watcher.joinable()) {
      watcher.join();
    }
  }
  for (auto& channel : channels_) channel.running.clear();
}

}  // namespace lockstep::nccl
