#include "lockstep/comm/backends/messages/incoming.h"

#include <algorithm>
#include <cstring>

namespace lockstep::messages {
namespace {

constexpr std::size_t STAGING = std::size_t{64} << 10U;

}  // namespace

Incoming::Incoming() : staging_(STAGING) {}

std::span<std::byte> Incoming::space() {
  return is_direct() ? payload_target() : std::span(staging_).subspan(end_);
}

void Incoming::filled(std::size_t bytes) {
  if (is_direct()) {
    took(bytes);
  } else {
    end_ += bytes;
  }
}

Incoming::Found Incoming::next() {
  if (state_ == State::BETWEEN) {
    if (staged() < sizeof(Header)) return nothing();
    std::memcpy(&header_, &staging_[begin_], sizeof(Header));
    begin_ += sizeof(Header);
    state_ = State::PAYLOAD;
    place(nullptr, /*keep=*/false);
    return Found::HEADER;
  }
  take_staged();
  if (left_ > 0) return nothing();
  state_ = State::BETWEEN;
  return Found::FRAME;
}

bool Incoming::place(std::shared_ptr<Receive> receive, bool keep) {
  receive_ = std::move(receive);
  keep_ = keep;
  left_ = header_.payload;
  if (receive_ && receive_->data.size() - receive_->arrived < left_) return false;
  kept_.assign(keep_ ? left_ : 0, std::byte{});
  return true;
}

// A payload that no receive wants goes into the staging memory, which is empty then.
std::span<std::byte> Incoming::payload_target() {
  if (is_received()) return receive_->data.subspan(receive_->arrived, left_);
  if (keep_) return std::span(kept_).last(left_);
  return std::span(staging_).first(std::min(left_, staging_.size()));
}

void Incoming::took(std::size_t bytes) {
  left_ -= bytes;
  if (!is_received()) return;
  receive_->arrived += bytes;
  receive_->owner->moved();
}

void Incoming::take_staged() {
  const std::size_t bytes = std::min(left_, staged());
  if (bytes == 0) return;
  if (keep_ || is_received()) std::memcpy(payload_target().data(), &staging_[begin_], bytes);
  begin_ += bytes;
  took(bytes);
}

// Moves the staged bytes to the beginning, so that there is space for the rest of their frame.
Incoming::Found Incoming::nothing() {
  std::memmove(staging_.data(), staging_.data() + begin_, staged());
  end_ -= begin_;
  begin_ = 0;
  return Found::NOTHING;
}

}  // namespace lockstep::messages
