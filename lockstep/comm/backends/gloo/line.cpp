#include "lockstep/comm/backends/gloo/line.h"

#include "lockstep/comm/backends/gloo/packets.h"

namespace lockstep::gloo {

Line::Line(int rank, ::gloo::transport::Context& context, Bell& bell)
    : rank_(rank),
      context_(context),
      bell_(bell),
      address_(context.createPair(rank)->address().bytes()),
      memory_(std::make_unique_for_overwrite<std::byte[]>(MEMORY)),
      buffer_(context.createUnboundBuffer(memory_.get(), MEMORY)) {}

// Only the connecting thread deletes the pair, and only after the line is closed.
void Line::stop_connecting() {
  {
    const auto lock = bell_.lock();
    if (state_ != State::CONNECTING) return;
  }
  const auto& pair = context_.getPair(rank_);
  if (pair) pair->close();
}

const char* Line::break_off(const Break& found) {
  const auto lock = bell_.lock();
  if (broken_.reason.empty()) broken_ = found;
  if (state_ == State::CONNECTING || state_ == State::OPEN) state_ = State::BROKEN;
  tell_threads();
  return broken_.reason.c_str();
}

void Line::connected() {
  if (state_ == State::CONNECTING) state_ = State::OPEN;
}

void Line::end() {
  if (state_ != State::CLOSED) state_ = State::ENDED;
}

// Gloo keeps an abort that finds no waiting thread for the next wait.
void Line::close() {
  if (state_ == State::CLOSED) return;
  state_ = State::CLOSED;
  buffer_->abortWaitRecv();
  buffer_->abortWaitSend();
  tell_threads();
}

}  // namespace lockstep::gloo
