#include "lockstep/comm/backends/messages/lines.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep::messages {

Lines::Lines(Connections connections, FrameReceiver& receiver)
    : links_(std::move(connections.links)),
      silence_(connections.silence),
      peers_(std::move(connections.peers)) {
  connections.memories.resize(peers_.size());
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    auto link = links_->link_to(r);
    const auto& memory = connections.memories[static_cast<std::size_t>(r)];
    connections_.push_back(link ? std::make_unique<Connection>(std::move(link), r, receiver, memory)
                                : nullptr);
  }
}

StreamEnd Lines::end_of(int rank) const {
  const auto& connection = connections_.at(static_cast<std::size_t>(rank));
  return connection ? connection->end() : StreamEnd::NONE;
}

const std::string& Lines::why_ended(int rank) const {
  static const std::string NO;
  const auto& connection = connections_.at(static_cast<std::size_t>(rank));
  return connection ? connection->closed_because() : NO;
}

bool Lines::flushed() const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [](const auto& connection) { return !connection || connection->flushed(); });
}

void Lines::serve(const std::vector<Links::Event>& events, const OnLoss& on_loss) {
  for (const auto& event : events) {
    auto& connection = connections_.at(static_cast<std::size_t>(event.peer));
    if (connection->closed()) continue;
    if (event.writable) connection->write();
    if (event.readable) connection->read();
    if (connection->closed()) on_loss(event.peer);
  }
  pull();
}

// After this process was stopped, nothing is known about the machines' silence meanwhile. So each machine
// gets the full time again.
void Lines::end_silent(const OnLoss& on_loss) {
  if (silence_.count() == 0 || RunningClock::since_stop() < silence_) return;
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    auto& connection = connections_[static_cast<std::size_t>(r)];
    const std::chrono::duration<double> silent =
        connection ? connection->silent_for() : std::chrono::milliseconds::zero();
    if (silent < silence_) continue;
    connection->close(StreamEnd::BROKEN, str("its machine has not answered for ", silent.count(), " s"));
    on_loss(r);
  }
}

void Lines::has_to_pull(int peer) {
  if (std::find(pulling_.begin(), pulling_.end(), peer) == pulling_.end()) pulling_.push_back(peer);
}

void Lines::pull() {
  const auto peers = std::exchange(pulling_, {});
  for (const int peer : peers) {
    if (to(peer).pull()) pulling_.push_back(peer);
  }
}

}  // namespace lockstep::messages
