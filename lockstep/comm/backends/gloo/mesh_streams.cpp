#include "lockstep/comm/backends/gloo/mesh_streams.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep::gloo {

void put(const std::string& text, Text& into) {
  const std::size_t length = std::min(text.size(), into.size() - 1);
  std::copy_n(text.data(), length, into.data());
  into.at(length) = '\0';
}

MeshStreams::MeshStreams(const Place& place, const std::shared_ptr<::gloo::transport::Device>& device)
    : context_(device->createContext(place.rank, place.size)) {
  constexpr int GLOO_TIMES = 5;  // Gloo waits so many timeouts for a connection
  context_->setTimeout(std::max(place.patience / GLOO_TIMES, std::chrono::milliseconds(1)));
  for (int r = 0; r < place.size; ++r)
    members_.push_back(r == place.rank ? nullptr : std::make_unique<Member>(r, *context_, bell_));
}

MeshStreams::~MeshStreams() {
  for (const auto& member : members_) {
    if (member) member->line.stop_connecting();
  }
  {
    const auto lock = bell_.lock();
    for (const auto& member : members_) {
      if (member) member->line.close();
    }
  }
  for (const auto& member : members_) {
    if (!member) continue;
    member->receiver.join();
    member->sender.join();
  }
}

void MeshStreams::connect(int with, std::span<const char> address) {
  Member& member = at(with);
  member.receiver.start(address);
  member.sender.start();
}

int MeshStreams::wait_connected(TimePoint deadline, Text& error) {
  auto lock = bell_.lock();
  const auto first = [&](const auto& is_it) {
    const auto found = std::find_if(members_.begin(), members_.end(),
                                    [&](const auto& member) { return member && is_it(member->line); });
    return found == members_.end() ? nullptr : &(*found)->line;
  };
  const auto ended = [&] { return first([](const Line& line) { return line.has_ended(); }); };
  const auto missing = [&] { return first([](const Line& line) { return !line.is_open(); }); };
  bell_.wait(lock, deadline, [&] { return ended() != nullptr || missing() == nullptr; });
  const Line* const found = ended() != nullptr ? ended() : missing();
  if (found == nullptr) return -1;
  put(found->why_broken().reason, error);
  return found->rank();
}

void MeshStreams::close(int with) {
  Line& line = at(with).line;
  line.stop_connecting();
  const auto lock = bell_.lock();
  line.close();
}

std::size_t MeshStreams::wait(std::span<Ready> ready, TimePoint deadline) {
  auto lock = bell_.lock();
  std::size_t count = 0;
  bell_.wait(lock, deadline, [&] { return woken_ || (count = collect(ready)) > 0; });
  woken_ = false;
  return count;
}

// Called with the bell's lock held.
std::size_t MeshStreams::collect(std::span<Ready> ready) const {
  std::size_t count = 0;
  for (const auto& member : members_) {
    if (!member || member->line.is_closed() || count == ready.size()) continue;
    const bool readable = member->receiver.is_readable();
    const bool writable = member->sender.is_writable();
    if (readable || writable) ready[count++] = {member->line.rank(), readable, writable};
  }
  return count;
}

void MeshStreams::wake() {
  {
    const auto lock = bell_.lock();
    woken_ = true;
  }
  bell_.ring();
}

}  // namespace lockstep::gloo
