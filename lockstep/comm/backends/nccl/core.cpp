#include "lockstep/comm/backends/nccl/core.h"

#include <algorithm>

#include "lockstep/base/log.h"
#include "lockstep/base/naps.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/nccl/device_wait.h"

namespace lockstep::nccl {
namespace {

bool is_of_group(ErrorCode code) {  // the whole group has failed, not only the call
  return code == ErrorCode::MISMATCH || code == ErrorCode::TIMEOUT || code == ErrorCode::PEER_LOST ||
         code == ErrorCode::BACKEND || code == ErrorCode::ABORTED;
}

GroupPlace place_of(const Core::Membership& group) {
  const int rank = group.hosts->rank();
  const int world_rank =
      group.world_ranks.empty() ? rank : group.world_ranks.at(static_cast<std::size_t>(rank));
  return {.group = group.name, .rank = rank, .size = group.hosts->size(), .world_rank = world_rank};
}

// Several operations are messages, which are launched together.
std::vector<Stage> stages_of_all(const std::vector<std::shared_ptr<Operation>>& operations, int rank,
                                 int size, const std::optional<Grid>& grid) {
  if (operations.size() == 1) return stages_of(operations.front()->request(), rank, size, grid);
  Stage one;
  for (const auto& operation : operations) {
    const auto more = steps_of(operation->request(), rank, size);
    one.steps.insert(one.steps.end(), more.begin(), more.end());
  }
  return {std::move(one)};
}

// NCCL's own connections may be the first to notice that a rank has died or given up. They do not say why,
// and the hosts soon will: they get a moment.
std::exception_ptr cause_of(const std::exception_ptr& error, Backend& hosts) {
  constexpr std::chrono::milliseconds MOMENT{500};
  constexpr std::chrono::milliseconds PAUSE{1};
  try {
    std::rethrow_exception(error);
  } catch (const DistBackendError&) {
    Naps naps;
    for (const auto until = naps.now() + MOMENT; naps.now() < until; naps.sleep(PAUSE)) {
      if (const std::exception_ptr known = failure_of_hosts(hosts)) return known;
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): says its cause
  }
  return error;
}

void end_lanes(const Core::Channels& channels, Lanes::End how, const GroupPlace& place) {
  if (Lanes::end({channels[Core::COLLECTIVES].lanes.get(), channels[Core::MESSAGES].lanes.get()}, how))
    return;
  log(LogLevel::WARNING,
      str(text_of(place), ": NCCL has not ended its communicators within ", Communicator::LIMIT.count(),
          how == Lanes::End::ABORT
              ? " s of the group's failure"
              : " s: another rank has not left the group, or has not received what this rank sent"));
}

}  // namespace

Core::Core(Membership membership, Channels channels)
    : membership_(std::move(membership)),
      channels_(std::move(channels)),
      standing_(place_of(membership_)),
      recorder_(membership_.hosts->trace(), {membership_.name, std::string(membership_.backend), rank(),
                                             size(), membership_.world_ranks}) {}

void Core::begin() {
  for (std::size_t i = 0; i < channels_.size(); ++i)
    watchers_[i] = std::thread([self = shared_from_this(), i] { self->watch(self->channels_[i]); });
}

// ---- calls

std::shared_ptr<Operation> Core::start(Request&& request) {
  const std::lock_guard launching(launching_);
  const bool is_message = lockstep::is_message(request.verb);
  Channel& channel = channels_[is_message ? MESSAGES : COLLECTIVES];
  const auto operation =
      std::make_shared<Operation>(shared_from_this(), std::move(request), channel.number + 1);
  {
    const std::lock_guard lock(mutex_);
    if (!standing_.is_open()) standing_.throw_unusable(operation->describe());
    ++channel.number;
    operation->keep_record(recorder_.start(operation->call(), is_message ? 0 : channel.number));
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
    std::rethrow_exception(operation->failure());
  }
  return operation;
}

void Core::launch(Channel& channel, const std::vector<std::shared_ptr<Operation>>& operations) {
  const OnDevice here(streams(), membership_.device);
  streams().wait(channel.lanes->main(), streams().record(nullptr));
  channel.lanes->launch(
      stages_of_all(operations, rank(), size(), membership_.grid),
      {Deadline::in(membership_.options.timeout), [this] { membership_.hosts->check_peers(); }});
  const DeviceStreams::Event end = streams().record(channel.lanes->main());
  {
    const std::lock_guard lock(mutex_);
    for (const auto& operation : operations) {
      if (standing_.is_over()) fail_operation(*operation);
      if (operation->is_over()) continue;
      operation->launched(end);
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

// Without a timeout, a device's operation only orders the caller's stream. Otherwise the host waits.
void Core::wait(Operation& operation, std::optional<std::chrono::nanoseconds> timeout) {
  launch_messages();
  std::unique_lock lock(mutex_);
  const bool blocks = streams().device_type() == DeviceType::CPU;
  if (!blocks && !timeout) {
    if (operation.is_running()) {
      const OnDevice here(streams(), membership_.device);
      streams().wait(nullptr, operation.end());
    }
  } else {
    const Deadline until = timeout ? Deadline::in(*timeout) : Deadline::never();
    if (!wait_until(changed_, lock, until, [&] { return operation.is_over(); })) {
      lock.unlock();
      const double seconds = std::chrono::duration<double>(*timeout).count();
      fail(ErrorCode::TIMEOUT, str(operation.describe(), " is not over after ", seconds, " s"));
      lock.lock();
    }
  }
  if (operation.failure()) std::rethrow_exception(operation.failure());
}

bool Core::poll(Operation& operation) {
  launch_messages();
  const std::lock_guard lock(mutex_);
  return operation.is_over();
}

std::exception_ptr Core::exception_of(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  return operation.failure();
}

// ---- the watchers

void Core::watch(Channel& channel) {
  // A thread's device is the first one until it says otherwise, and CUDA would make a context there.
  streams().set_device(membership_.device);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [&] { return standing_.has_ended() || (standing_.is_open() && !channel.running.empty()); });
    if (standing_.has_ended()) return;
    std::shared_ptr<Operation> operation = channel.running.front();
    lock.unlock();
    std::shared_ptr<void> released;
    try {
      operation->agree();
      await_device(*channel.lanes, *operation,
                   {streams(), *membership_.hosts, membership_.name, membership_.options});
      lock.lock();
    } catch (const std::exception&) {  // libtorch's streams throw CUDA's errors
      fail_with(std::current_exception());
      lock.lock();
    }
    if (operation->is_running() && !standing_.has_failed()) {
      channel.running.pop_front();
      recorder_.finish(operation->ticket(), FlightRecorder::DONE);
      released = operation->finish();
    }
    lock.unlock();
    changed_.notify_all();
    released.reset();  // the last reference may run a destructor of the program
    operation.reset();
    lock.lock();
  }
}

// ---- the end

void Core::fail_with(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(cause_of(error, *membership_.hosts));
  } catch (const PeerLost& lost) {
    fail(lost.code(), lost.what(), lost.peer());
  } catch (const Error& other) {
    fail(other.code(), other.what());
  } catch (const std::exception& other) {
    fail(ErrorCode::BACKEND, other.what());
  }
}

// Called with the lock held. Before that, another thread's failure may leave NCCL at work on the caller's
// memory.
void Core::await_abort(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return standing_.is_over(); });
}

// Called with the lock held.
void Core::fail_operation(Operation& operation) {
  if (operation.is_over()) return;
  operation.fail(standing_.failure_of(operation.describe()));
  recorder_.finish(operation.ticket(), FlightRecorder::FAILED);
}

// Called with the lock held.
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
    if (!standing_.is_open()) return;
    standing_.fail({code, text, peer, rank()});
    recorder_.note_failure(text, code, peer, rank());
  }
  // Tells the other ranks first, because this rank may leave as soon as it is told itself. The group for CPU
  // memory must fail too: its waits wait for a rank that makes no more calls.
  membership_.hosts->abort(text, code, peer);
  membership_.cpu->abort(text, code, peer);
  end_lanes(channels_, Lanes::End::ABORT, standing_.place());
  {
    const std::lock_guard lock(mutex_);
    standing_.told();
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
  if (!standing_.is_open()) standing_.throw_unusable(A_WAIT_OUTSIDE);
}

void Core::require_usable(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!standing_.is_open()) standing_.throw_unusable(what);
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
  bool is_orderly = false;
  {
    std::unique_lock lock(mutex_);
    if (standing_.has_ended()) return;
    const auto are_over = [&] {
      return standing_.has_failed() ||
             std::all_of(channels_.begin(), channels_.end(), [](const auto& c) { return c.running.empty(); });
    };
    // What all ranks have called ends by itself, or by the group's timeout, and its results count. Of other
    // operations this rank waits a moment for the rest of the ranks.
    const auto is_under_way = [&] {
      return std::any_of(channels_.begin(), channels_.end(),
                         [](const auto& c) { return !c.running.empty() && c.running.front()->is_agreed(); });
    };
    while (!wait_until(changed_, lock, Deadline::in(MOMENT), are_over) && is_under_way()) {
    }
    changed_.wait(lock, [&] { return !standing_.is_failing(); });
    is_orderly = !standing_.has_failed() && std::all_of(channels_.begin(), channels_.end(),
                                                        [](const auto& c) { return c.running.empty(); });
    standing_.end();
    fail_all();
    recorder_.leave();
  }
  changed_.notify_all();
  // The other ranks may still wait for what this one has sent.
  if (is_orderly) end_lanes(channels_, Lanes::End::FINISH, standing_.place());
  membership_.hosts->close();
  if (!is_orderly) end_lanes(channels_, Lanes::End::ABORT, standing_.place());
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
