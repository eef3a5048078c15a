// Line: this rank's unbound buffer of Gloo to one other rank, and its state. A Sender and a Receiver use it.
// Each of them has a thread.
//   CONNECTING --connected()--> OPEN
//       |                        |
//       +--a call of Gloo fails--+--> BROKEN: nothing can be sent --end()--> ENDED: nothing more will arrive
//
// close() leads from each state to CLOSED, which ends both threads.
//
// Threads: the bell's lock for the functions marked so; all others take it themselves.
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
  std::span<const char> address() const { return address_; }  // where this process listens for the other rank
  std::byte* at(std::size_t offset) const { return &memory_[offset]; }
  ::gloo::transport::UnboundBuffer& buffer() const { return *buffer_; }

  // Blocks until the pair is connected. Throws Gloo's errors.
  void connect(const std::vector<char>& theirs) { context_.getPair(rank_)->connect(theirs); }
  // Ends a connect() that blocks.
  void stop_connecting();
  // Called by the thread that connected, when the line is closed.
  void drop_pair() { context_.getPair(rank_).reset(); }

  // Makes a call of Gloo. Returns null, or the reason why it failed; the line is broken then.
  template <class Call> const char* call(const Call& call) {
    try {
      const HeldPipeSignal held;
      call();
      return nullptr;
    } catch (const std::exception& error) {
      return break_off(break_of(error));
    }
  }
  // Returns the first reason that was given.
  const char* break_off(const Break& found);

  // ---- with the bell's lock held
  bool is_open() const { return state_ == State::OPEN; }
  bool is_broken() const { return state_ == State::BROKEN || state_ == State::ENDED; }
  bool has_ended() const { return state_ == State::ENDED; }
  bool is_closed() const { return state_ == State::CLOSED; }
  const Break& why_broken() const { return broken_; }
  Streams::Moved nothing_moved() const { return {0, broken_.reason.c_str(), broken_.by_peer}; }
  void connected();
  void end();
  void close();
  // Waits until `is_over`. It is evaluated when the state has changed or tell_threads() was called.
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
  const std::unique_ptr<std::byte[]> memory_;  // the ring of outgoing packets, then that of incoming ones
  const std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
  std::condition_variable changed_;
  // guarded by the bell's lock
  State state_ = State::CONNECTING;
  Break broken_;
};

}  // namespace lockstep::gloo
