#include "lockstep/comm/backends/messages/fabric.h"

#include <utility>

#include "lockstep/base/running_clock.h"
#include "lockstep/comm/backends/messages/core.h"
#include "lockstep/comm/backends/messages/operation.h"

namespace lockstep::messages {

std::shared_ptr<Core> Fabric::find(std::uint64_t id) {
  const auto found = groups_.find(id);
  std::shared_ptr<Core> group = found == groups_.end() ? nullptr : found->second.lock();
  if (group) hold_until_unlocked(group);
  return group;
}

FrameReceiver::Destination Fabric::place_for(int peer, const Header& header) {
  const auto group = find(header.group);
  return group ? group->place_for(peer, header) : Destination{};
}

// Before a failure or goodbye is handled, operations complete with what had arrived before it.
void Fabric::arrived(int peer, const Header& header, std::vector<std::byte> payload) {
  const auto group = find(header.group);
  if (header.kind == Kind::FAILURE || header.kind == Kind::GOODBYE) carry_on();
  if (group) {
    group->arrived(peer, header, std::move(payload));
  } else if (header.kind == Kind::MESSAGE) {
    lines_.to(peer).consumed(header.bytes);
  }
}

// groups_ may change while groups are told, so their ids are copied first.
void Fabric::tell_of_loss(int peer) {
  carry_on();
  for (const auto& send : lines_.to(peer).abandoned()) {
    send->over = true;
    if (send->owner != nullptr) send->owner->dropped(*send);
  }
  std::vector<std::uint64_t> ids;
  for (const auto& [id, group] : groups_) ids.push_back(id);
  for (const std::uint64_t id : ids) {
    if (const auto group = find(id)) group->lost(peer);
  }
}

void Fabric::carry_on() {
  while (!ready_.empty()) {
    const auto batch = std::exchange(ready_, {});
    for (const auto& operation : batch) {
      hold_until_unlocked(operation);
      operation->carry_on();
    }
  }
}

std::vector<std::shared_ptr<void>> Fabric::settle() {
  carry_on();
  if (turns_.tell_waiters()) lines_.wake();
  return std::exchange(held_, {});
}

// Only one thread serves the connections. A rank that does not get the turn sleeps until there is news.
void Fabric::wait(Session& session, Deadline::Clock::time_point until) {
  const Turns::Waiting waiting(turns_);
  const auto span = until - Deadline::Clock::now();
  if (!turns_.begin_turn()) return turns_.sleep(session.lock(), span);
  const auto longest = lines_.is_pulling() ? Deadline::Clock::duration(0) : span;
  session.lock().unlock();
  const auto events = [&] {
    // An engine naps by itself, but a process that looks at it without a pause, or has given its core away,
    // can be stopped as well.
    const Nap nap(longest);
    return lines_.await(Deadline::in(longest), /*eager=*/true);
  }();
  session.lock().lock();
  turns_.end_turn();
  serve(events);
  session.settle();
}

void Fabric::poll() {
  {
    const auto locked = lock();
    if (turns_.is_a_waiters()) return;
  }
  turn(Deadline::in(std::chrono::nanoseconds(0)));
}

void Fabric::turn(Deadline deadline) {
  const auto events = lines_.await(deadline);
  const Session session(*this);
  if (turns_.is_a_waiters()) lines_.wake();  // a waiting rank may have missed the event that woke this thread
  serve(events);
}

void Fabric::serve(const std::vector<Links::Event>& events) {
  lines_.serve(events, [this](int peer) { tell_of_loss(peer); });
}

void Fabric::has_to_pull(int peer) {
  lines_.has_to_pull(peer);
  if (!turns_.is_nobodys()) lines_.wake();
}

void Fabric::end_silent() {
  lines_.end_silent([this](int peer) { tell_of_loss(peer); });
}

void Fabric::run() {
  auto locked = lock();
  while (!turns_.has_stopped()) {
    if (!turns_.is_the_threads()) {
      turns_.rest(locked);
      continue;
    }
    const Deadline deadline =
        lines_.is_pulling() ? Deadline::in(std::chrono::nanoseconds(0)) : Deadline::never();
    locked.unlock();
    turn(deadline);
    locked.lock();
    turns_.end_turn_of_thread();
  }
  turns_.end_thread();
}

void Fabric::stop() {
  {
    const auto locked = lock();
    turns_.stop();
  }
  lines_.wake();
}

void Fabric::wait_for_end_of_thread(Deadline deadline) {
  auto locked = lock();
  while (!turns_.has_thread_ended() && !deadline.expired()) turns_.sleep(locked, deadline.remaining());
}

void Session::keep(std::vector<std::shared_ptr<void>> released) {
  released_.insert(released_.end(), std::make_move_iterator(released.begin()),
                   std::make_move_iterator(released.end()));
}

Session::~Session() { settle(); }

void Running::start() {
  thread_ = std::thread([fabric = fabric_] { fabric->run(); });
}

void Running::end(Deadline deadline) {
  fabric_->stop();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id())
    fabric_->wait_for_end_of_thread(deadline);
}

Running::~Running() {
  fabric_->stop();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace lockstep::messages
