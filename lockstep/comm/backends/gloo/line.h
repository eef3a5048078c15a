// Line: this rank's unbound buffer of Gloo to one other rank, and its state. A Sender and a Receiver use it,
// each with a thread.
//
//   CONNECTING --connected()--> OPEN
//       |                        |
//       +--a call of Gloo fails--+--> BROKEN: nothing can be sent --end()--> ENDED: nothing more will arrive
//
//   close() leads from each of them to CLOSED: both threads come to an end.
//
// Threads: the bell's lock for what says so; the others take it themselves.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lockstep/comm/backends/gloo/bell.h"
#include "lockstep/comm/backends/gloo/pipe_signal.h"
#include "lockstep/comm/backends/gloo/stream_break.h"

namespace lockstep::gloo {

class Line {
 public:
  Line(int rank, ::gloo::transport::Context& context, Bell& bell);

  int rank() const { return rank_; }
  Bell& bell() const { return bell_; }
  std::span<const char> address() const { return address_; }  // where this process listens for the other
  std::byte* at(std::size_t offset) const { return &memory_[offset]; }
  ::gloo::transport::UnboundBuffer& buffer() const { return *buffer_; }

  // Blocks until the pair is connected; throws what Gloo does.
  void connect(const std::vector<char>& theirs) { context_.getPair(rank_)->connect(theirs); }
  // Ends a connect() that blocks.
  void stop_connecting();
  // By the thread that connected, when the line is closed.
  void drop_pair() { context_.getPair(rank_).reset(); }

  // Null, or why it failed; the line is broken then.
  template <class Call> const char* call(const Call& call) {
    try {
      const HeldPipeSignal held;
      call();
      return nullptr;
    } catch (const std::exception& error) {
      return break_off(break_of(error));
    }
  }
  // The first reason counts; returns that.
  const char* break_off(const Break& found);

  // ---- with the bell's lock
  bool is_open() const { return state_ == State::OPEN; }
  bool is_broken() const { return state_ == State::BROKEN || state_ == State::ENDED; }
  bool has_ended() const { return state_ == State::ENDED; }
  bool is_closed() const { return state_ == State::CLOSED; }
  const Break& why_broken() const { return broken_; }
  Streams::Moved nothing_moved() const { return {0, broken_.reason.c_str(), broken_.by_peer}; }
  void connected();
  void end();
  void close();
  // Until `is_over`, which is asked when the state has changed or somebody has called tell_threads().
  template <class IsOver> void wait(std::unique_lock<std::mutex>& lock, const IsOver& is_over) {
    changed_.wait(lock, is_over);
  }
  void tell_threads() { changed_.notify_all(); }

 private:
  enum class State { CONNECTING, OPEN, BROKEN, ENDED, CLOSED };

  const int rank_;
  ::gloo::transport::Context& context_;
  Bell& bell_;
  const std::vector<char> address_;
  const std::unique_ptr<std::byte[]> memory_;  // packets out, packets in
  const std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
  std::condition_variable changed_;
  // guarded by the bell's lock
  State state_ = State::CONNECTING;
  Break broken_;
};

}  // namespace lockstep::gloo
