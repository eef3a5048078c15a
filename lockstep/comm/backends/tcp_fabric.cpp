#include "lockstep/comm/backends/tcp_fabric.h"

#include <algorithm>

#include "lockstep/comm/backends/tcp_group.h"
#include "lockstep/comm/backends/tcp_operation.h"

namespace lockstep::tcp {

Fabric::Fabric(Connections connections, int rank)
    : rank_(rank), links_(std::move(connections.links)), peers_(std::move(connections.peers)) {
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    auto link = links_->link_to(r);
    connections_.push_back(link ? std::make_unique<Connection>(std::move(link), r, *this) : nullptr);
  }
}

const std::string& Fabric::lost(int rank) const {
  static const std::string NO;
  const auto& connection = connections_.at(static_cast<std::size_t>(rank));
  return connection ? connection->closed_because() : NO;
}

std::shared_ptr<Group> Fabric::find(std::uint64_t id) {
  const auto found = groups_.find(id);
  std::shared_ptr<Group> group = found == groups_.end() ? nullptr : found->second.lock();
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
  if (std::exchange(news_, false)) changed.notify_all();
  return std::exchange(held_, {});
}

bool Fabric::flushed() const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [](const auto& connection) { return !connection || connection->flushed(); });
}

void Fabric::turn(Deadline deadline) {
  const auto events = links_->wait(deadline);
  if (events.empty()) return;
  const Session session(*this);
  for (const auto& event : events) {
    auto& connection = connections_.at(static_cast<std::size_t>(event.peer));
    if (connection->closed()) continue;
    if (event.writable) connection->write();
    if (event.readable) connection->read();
    if (connection->closed()) tell_of_loss(event.peer);
  }
}

void Fabric::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stopping_) return;
    }
    turn(Deadline::never());
  }
}

void Fabric::stop() {
  {
    const std::lock_guard lock(mutex);
    stopping_ = true;
  }
  links_->wake();
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

}  // namespace lockstep::tcp
