// Outgoing: the writing half of a connection (connection.h). Frames go out in the order posted. Between two
// frames go chunks of the large messages that the receiver has asked for, one chunk of each message in turn.
//
//   post(send) --fits the window--> MESSAGE in the queue --------------------------> sent
//              --else-------------> OFFER, waits for ACCEPT --> CHUNK, CHUNK, ... -> sent
//                                          or for TAKEN of all of it, GIVEN ------> sent
//
// The states are those of the link:
//
//   IDLE --the link is full--> BLOCKED: the link tells when there is room --> IDLE
//     |                           |
//     |--a write fails------------|----> BROKEN: reading will tell why
//     |--close()------------------|----> CLOSED, also from BROKEN
//
// Threads: the fabric's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/backends/messages/link.h"
#include "lockstep/comm/backends/messages/transfer.h"

namespace lockstep::messages {

class Outgoing {
 public:
  // `shows_memory`: an OFFER says where the message lies, for a receiver that can read this process's memory.
  Outgoing(Link& link, bool shows_memory) : link_(link), shows_memory_(shows_memory) {}

  // Both write at once as much as the link takes.
  void post(Header header, const std::string& text = {});
  void post(const std::shared_ptr<Send>& send);
  void answer(Kind kind, std::uint32_t transfer, std::uint64_t bytes = 0);

  // ---- answers of the receiver
  void accepted(const Header& header);
  void taken(const Header& header);
  void credited(std::size_t bytes) { in_window_ -= std::min(in_window_, bytes); }

  // After this returns, the send's memory is not touched and its owner is not called.
  void cancel(Send& send);
  void write();
  // Everything posted has reached the peer's kernel, or will leave this process even if the process ends
  // next.
  bool flushed() const;
  void close() { state_ = State::CLOSED; }
  // After close(): the sends that were not completed, and never will be.
  std::vector<std::shared_ptr<Send>> abandoned();

 private:
  enum class State { IDLE, BLOCKED, BROKEN, CLOSED };

  struct Frame {
    Header header;
    std::vector<std::byte> owned;        // the payload, or it is empty, and
    std::shared_ptr<Send> send;          // the payload is a part of this send's data
    std::span<const std::byte> payload;  // the bytes of the payload
    void own();                          // copies the payload, so that the send's data is no longer needed
  };

  bool can_write() const { return state_ == State::IDLE || state_ == State::BLOCKED; }
  void show_memory(Frame& offer, const Send& send);
  bool next_frame();
  void next_chunk(const std::shared_ptr<Send>& send);
  void finish_written();
  void note(bool has_ended);

  Link& link_;
  const bool shows_memory_;
  State state_ = State::IDLE;
  std::deque<Frame> queue_;
  std::optional<Frame> current_;
  std::size_t current_written_ = 0;
  std::map<std::uint32_t, std::shared_ptr<Send>> offered_;
  std::deque<std::shared_ptr<Send>> streams_;  // accepted: their chunks are being sent
  std::uint32_t last_transfer_ = 0;
  std::size_t in_window_ = 0;  // cost of the MESSAGEs that the receiver may still hold
};

}  // namespace lockstep::messages
