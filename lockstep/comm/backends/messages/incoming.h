// Incoming: the reading half of a connection (connection.h). It cuts the bytes of a link into frames. The
// payload of a frame goes straight into the buffer that waits for it. If none waits, it goes into memory of
// its own, which the caller takes.
//
//   link.receive_some(incoming.space());  incoming.filled(bytes);
//   for (auto found = incoming.next(); found != Incoming::Found::NOTHING; found = incoming.next()) {
//     if (found == Incoming::Found::HEADER) incoming.place(who_waits_for(incoming.header()), keep);
//     if (found == Incoming::Found::FRAME) use(incoming.header(), incoming.take_kept());
//   }
//
//   BETWEEN frames --next() finds a header--> in the PAYLOAD --next() finds all of it--> BETWEEN
//
// The caller checks each header, and may stop there. Threads: the fabric's lock.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/comm/backends/messages/transfer.h"

namespace lockstep::messages {

class Incoming {
 public:
  enum class Found { NOTHING, HEADER, FRAME };

  Incoming();

  // Memory for the next bytes of the link; never empty.
  std::span<std::byte> space();
  // The link has written `bytes` bytes to space().
  void filled(std::size_t bytes);
  // NOTHING means that more bytes are needed.
  Found next();

  const Header& header() const { return header_; }
  // After HEADER: the payload goes into the rest of `receive`'s buffer. Without a receive it is kept or
  // dropped. Returns false if it does not fit.
  bool place(std::shared_ptr<Receive> receive, bool keep);
  // After FRAME: the receive whose buffer took the payload, or null.
  std::shared_ptr<Receive> take_receive() { return std::exchange(receive_, nullptr); }
  bool has_kept() const { return keep_; }
  std::vector<std::byte> take_kept() { return std::move(kept_); }

 private:
  enum class State { BETWEEN, PAYLOAD };

  bool is_received() const { return receive_ && receive_->owner != nullptr; }
  // The link can write to the receive's buffer at once, without the staging memory.
  bool is_direct() const { return state_ == State::PAYLOAD && begin_ == end_; }
  std::size_t staged() const { return end_ - begin_; }
  std::span<std::byte> payload_target();
  void took(std::size_t bytes);
  void take_staged();
  Found nothing();

  State state_ = State::BETWEEN;
  std::vector<std::byte> staging_;  // bytes of the link; those from begin_ to end_ are not yet used
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  // of the current frame
  Header header_;
  std::size_t left_ = 0;  // bytes of its payload that are missing
  std::shared_ptr<Receive> receive_;
  std::vector<std::byte> kept_;
  bool keep_ = false;
};

}  // namespace lockstep::messages
