#include "lockstep/comm/backends/gloo/receiver.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace lockstep::gloo {

Streams::Moved Receiver::receive(std::span<std::byte> buffer) {
  {
    const auto lock = line_.bell().lock();
    if (arrived_ == taken_) return line_.has_ended() ? line_.nothing_moved() : Streams::Moved{};
  }
  const std::size_t offset = incoming(taken_);
  std::uint64_t length = 0;
  std::memcpy(&length, line_.at(offset), sizeof length);
  if (length == HAVE_YOU_READ || length == HAVE_READ) {
    take(offset);
    return obey(length);
  }
  if (length > PAYLOAD || read_ > length)
    return {0, line_.break_off({"the received data is not a packet of Lockstep", false}), false};
  const std::size_t bytes = std::min<std::size_t>(buffer.size(), length - read_);
  std::memcpy(buffer.data(), line_.at(offset + sizeof length + read_), bytes);
  read_ += bytes;
  if (read_ == length) take(offset);
  return {bytes, nullptr, false};
}

Streams::Moved Receiver::obey(std::uint64_t word) {
  if (word == HAVE_YOU_READ) return {0, sender_.answer()};
  sender_.note_answer();
  return {};
}

// The packet at this place has been read, so Gloo may fill it again.
void Receiver::take(std::size_t offset) {
  read_ = 0;
  {
    const auto lock = line_.bell().lock();
    ++taken_;
    if (line_.is_broken() || line_.is_closed()) return;
  }
  line_.call([&] { line_.buffer().recv(line_.rank(), DATA, offset, PACKET); });
}

void Receiver::run() {
  hold_pipe_signal_for_ever();
  try {
    line_.connect(theirs_);
    line_.buffer().recv(line_.rank(), WATCH, 0, 0);
    for (std::uint64_t packet = 0; packet < SLOTS; ++packet)
      line_.buffer().recv(line_.rank(), DATA, incoming(packet), PACKET);
    {
      const auto lock = line_.bell().lock();
      line_.connected();
    }
    line_.bell().ring();
    count_arrivals();
  } catch (const std::exception& error) {
    line_.break_off(break_of(error));
  }
  {
    auto lock = line_.bell().lock();
    line_.end();
    line_.bell().ring();
    line_.wait(lock, [&] { return line_.is_closed(); });
  }
  line_.drop_pair();
}

// Runs until the line closes; throws when its connection is broken. Gloo reports a break before packets that
// arrived earlier. Those can still be taken without waiting.
void Receiver::count_arrivals() {
  for (bool is_broken = false;;) {
    try {
      if (!line_.buffer().waitRecv(nullptr, ENDLESS)) return;
    } catch (const std::exception&) {
      if (std::exchange(is_broken, true)) throw;
      continue;
    }
    bool first = false;
    {
      const auto lock = line_.bell().lock();
      if (line_.is_closed()) return;
      first = arrived_++ == taken_;
    }
    if (first) line_.bell().ring();
  }
}

}  // namespace lockstep::gloo
