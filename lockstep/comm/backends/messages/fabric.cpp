#include "lockstep/comm/backends/messages/fabric.h"

#include <algorithm>

#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/core.h"
#include "lockstep/comm/backends/messages/operation.h"

namespace lockstep::messages {
namespace {

using Clock = Deadline::Clock;

// After which the thread serves what nobody waits for, when nothing of this rank is pending: news of others
// who fail or leave.
constexpr std::chrono::milliseconds REST{1};
constexpr std::chrono::milliseconds LONG_REST{20};  // while somebody waits

}  // namespace

Fabric::Fabric(Connections connections, int rank)
    : rank_(rank),
      links_(std::move(connections.links)),
      silence_(connections.silence),
      peers_(std::move(connections.peers)) {
  connections.memories.resize(peers_.size());
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    auto link = links_->link_to(r);
    const auto& memory = connections.memories[static_cast<std::size_t>(r)];
    connections_.push_back(link ? std::make_unique<Connection>(std::move(link), r, *this, memory) : nullptr);
  }
}

StreamEnd Fabric::end_of(int rank) const {
  const auto& connection = connections_.at(static_cast<std::size_t>(rank));
  return connection ? connection->end() : StreamEnd::NONE;
}

const std::string& Fabric::why_ended(int rank) const {
  static const std::string NO;
  const auto& connection = connections_.at(static_cast<std::size_t>(rank));
  return connection ? connection->closed_because() : NO;
}

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

void Fabric::arrived(int peer, const Header& header, std::vector<std::byte> payload) {
  const auto group = find(header.group);
  if (header.kind == Kind::FAILURE || header.kind == Kind::GOODBYE) carry_on();
  if (group) {
    group->arrived(peer, header, std::move(payload));
  } else if (header.kind == Kind::MESSAGE) {
    to(peer).consumed(header.bytes);
  }
}

void Fabric::tell_of_loss(int peer) {
  carry_on();
  for (const auto& send : to(peer).abandoned()) {
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
  if (std::exchange(news_, false)) {
    changed_.notify_all();
    if (server_ == Server::WAITER) links_->wake();
  }
  return std::exchange(held_, {});
}

bool Fabric::flushed() const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [](const auto& connection) { return !connection || connection->flushed(); });
}

void Fabric::wait(Session& session, Clock::time_point until) {
  ++waiting_;
  if (server_ != Server::NOBODY) {
    const auto span = std::min<std::chrono::nanoseconds>(until - Clock::now(), LONGEST_NAP);
    const Nap nap(span);
    changed_.wait_for(session.lock(), span);
  } else {
    server_ = Server::WAITER;
    const bool pulls = !pulling_.empty();
    session.lock().unlock();
    const auto events =
        await(Deadline::in(pulls ? Clock::duration(0) : until - Clock::now()), /*eager=*/true);
    session.lock().lock();
    server_ = Server::NOBODY;
    was_served_ = true;
    serve(events);
    session.settle();
  }
  --waiting_;
  if (waiting_ > 0 && server_ == Server::NOBODY) changed_.notify_one();  // another one's turn
}

void Fabric::serve_pending() {
  if (pending_ == 0 || waiting_ > 0 || server_ != Server::NOBODY) return;
  server_ = Server::THREAD;
  called_.notify_one();
}

void Fabric::poll() {
  {
    const std::lock_guard lock(mutex);
    if (server_ == Server::WAITER) return;
  }
  turn(Deadline::in(std::chrono::nanoseconds(0)));
}

void Fabric::turn(Deadline deadline) {
  const auto events = await(deadline);
  const Session session(*this);
  if (server_ == Server::WAITER) links_->wake();  // who may have been woken here in its place
  serve(events);
}

void Fabric::serve(const std::vector<Links::Event>& events) {
  for (const auto& event : events) {
    auto& connection = connections_.at(static_cast<std::size_t>(event.peer));
    if (connection->closed()) continue;
    if (event.writable) connection->write();
    if (event.readable) connection->read();
    if (connection->closed()) tell_of_loss(event.peer);
  }
  pull();
}

// Whoever serves the connections pulls, so that these are looked at between two pieces.
void Fabric::has_to_pull(int peer) {
  if (std::find(pulling_.begin(), pulling_.end(), peer) == pulling_.end()) pulling_.push_back(peer);
  if (server_ != Server::NOBODY) links_->wake();
}

void Fabric::pull() {
  const auto peers = std::exchange(pulling_, {});
  for (const int peer : peers) {
    if (to(peer).pull()) pulling_.push_back(peer);
  }
}

void Fabric::end_silent() {
  // Of the time in which this process was stopped nothing is known: who was away itself gives the others as
  // much time again.
  if (silence_.count() == 0 || RunningClock::since_stop() < silence_) return;
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    auto& connection = connections_[static_cast<std::size_t>(r)];
    const std::chrono::duration<double> silent =
        connection ? connection->silent_for() : std::chrono::milliseconds::zero();
    if (silent < silence_) continue;
    connection->close(StreamEnd::BROKEN, str("its machine has not answered for ", silent.count(), " s"));
    tell_of_loss(r);
  }
}

void Fabric::run() {
  std::unique_lock lock(mutex);
  while (!stopping_) {
    if (server_ != Server::THREAD) {
      rest(lock);
      continue;
    }
    const Deadline deadline =
        pulling_.empty() ? Deadline::never() : Deadline::in(std::chrono::nanoseconds(0));
    lock.unlock();
    turn(deadline);
    lock.lock();
    if (waiting_ == 0) continue;
    server_ = Server::NOBODY;
    changed_.notify_one();
  }
}

// Until it is called, or nobody has waited for as long. To look is a change between threads, too.
void Fabric::rest(std::unique_lock<std::mutex>& lock) {
  was_served_ = false;
  called_.wait_for(lock, server_ == Server::WAITER ? LONG_REST : REST,
                   [&] { return stopping_ || server_ == Server::THREAD; });
  if (server_ == Server::NOBODY && waiting_ == 0 && !was_served_) server_ = Server::THREAD;
}

void Fabric::stop() {
  {
    const std::lock_guard lock(mutex);
    stopping_ = true;
  }
  links_->wake();
  called_.notify_all();
}

void Session::keep(std::vector<std::shared_ptr<void>> released) {
  released_.insert(released_.end(), std::make_move_iterator(released.begin()),
                   std::make_move_iterator(released.end()));
}

Session::~Session() { settle(); }

void Running::start() {
  thread_ = std::thread([fabric = fabric_] { fabric->run(); });
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
