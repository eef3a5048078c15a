#include "lockstep/comm/backends/gloo/sender.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace lockstep::gloo {

Streams::Moved Sender::send(const std::array<std::span<const std::byte>, 2>& parts) {
  const std::uint64_t bytes = std::min(PAYLOAD, parts[0].size() + parts[1].size());
  {
    const auto lock = line_.bell().lock();
    if (line_.is_broken()) return line_.nothing_moved();
    if (bytes == 0 || line_.is_closed() || !has_room()) return {};
  }
  std::byte* const payload = line_.at(outgoing(sent_)) + sizeof bytes;
  const std::size_t head = std::min<std::size_t>(bytes, parts[0].size());
  if (head > 0) std::memcpy(payload, parts[0].data(), head);
  if (bytes > head) std::memcpy(payload + head, parts[1].data(), bytes - head);
  if (const char* const broken = send_packet(bytes, bytes)) return {0, broken, line_.why_broken().by_peer};
  ++written_;
  return {bytes, nullptr, false};
}

bool Sender::flushed() {
  {
    const auto lock = line_.bell().lock();
    if (written_ == known_ || line_.is_closed() || line_.is_broken()) return true;
  }
  if (asked_ > 0) return false;
  asked_ = written_;
  return send_packet(HAVE_YOU_READ, 0) != nullptr;
}

void Sender::note_answer() { known_ = std::exchange(asked_, 0); }

void Sender::want_write(bool wanted) {
  {
    const auto lock = line_.bell().lock();
    wants_write_ = wanted;
  }
  if (wanted) line_.bell().ring();
}

// Sends the packet whose payload is already in its place. Returns null, or the reason why it cannot.
const char* Sender::send_packet(std::uint64_t length, std::size_t payload) {
  const std::size_t offset = outgoing(sent_);
  std::memcpy(line_.at(offset), &length, sizeof length);
  const char* const broken =
      line_.call([&] { line_.buffer().send(line_.rank(), DATA, offset, sizeof length + payload); });
  if (broken != nullptr) return broken;
  const auto lock = line_.bell().lock();
  ++sent_;
  if (sent_ - gone_ >= SLOTS - FEW && !std::exchange(drains_, true)) line_.tell_threads();
  return nullptr;
}

void Sender::run() {
  hold_pipe_signal_for_ever();
  auto lock = line_.bell().lock();
  const auto is_over = [&] { return line_.is_closed() || line_.is_broken(); };
  while (true) {
    line_.wait(lock, [&] { return is_over() || (drains_ && gone_ < sent_); });
    if (is_over()) return;
    lock.unlock();
    const bool has_gone = wait_for_one();
    lock.lock();
    if (!has_gone) continue;
    ++gone_;
    if (gone_ == sent_) drains_ = false;
    if (wants_write_) line_.bell().ring();
  }
}

bool Sender::wait_for_one() {
  try {
    return line_.buffer().waitSend(nullptr, ENDLESS);
  } catch (const std::exception& error) {
    line_.break_off(break_of(error));
    return false;
  }
}

}  // namespace lockstep::gloo
