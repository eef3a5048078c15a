// Incoming: the half of a connection (connection.h) that reads. It cuts the bytes of a link into frames. The
// payload of a frame goes straight into the buffer that waits for it, else into memory of its own, which the
// caller takes.
//
//   link.receive_some(incoming.space());  incoming.filled(bytes);
//   for (auto found = incoming.next(); found != Incoming::Found::NOTHING; found = incoming.next()) {
//     if (found == Incoming::Found::HEADER) incoming.place(who_waits_for(incoming.header()), keep);
//     if (found == Incoming::Found::FRAME) use(incoming.header(), incoming.take_kept());
//   }
//
//   BETWEEN frames --next() finds a header--> in the PAYLOAD --next() finds all of it--> BETWEEN
//
// The caller checks a header, and may stop there. Threads: the fabric's lock.
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

  // Where the next bytes of the link go; never empty.
  std::span<std::byte> space();
  // That many bytes of space() are the link's.
  void filled(std::size_t bytes);
  // NOTHING: more bytes are needed.
  Found next();

  const Header& header() const { return header_; }
  // After HEADER: its payload goes into what `receive` has not received yet. Without a receive it is kept, or
  // dropped. False: it does not fit.
  bool place(std::shared_ptr<Receive> receive, bool keep);
  // After FRAME: the receive, if the payload had one.
  std::shared_ptr<Receive> take_receive() { return std::exchange(receive_, nullptr); }
  bool has_kept() const { return keep_; }
  std::vector<std::byte> take_kept() { return std::move(kept_); }

 private:
  enum class State { BETWEEN, PAYLOAD };

  bool is_received() const { return receive_ && receive_->owner != nullptr; }
  // The link's bytes need not pass through the staging memory.
  bool is_direct() const { return state_ == State::PAYLOAD && begin_ == end_; }
  std::size_t staged() const { return end_ - begin_; }
  std::span<std::byte> payload_target();
  void took(std::size_t bytes);
  void take_staged();
  Found nothing();

  State state_ = State::BETWEEN;
  std::vector<std::byte> staging_;  // bytes of the link from begin_ to end_
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  // of the frame
  Header header_;
  std::size_t left_ = 0;  // of its payload
  std::shared_ptr<Receive> receive_;
  std::vector<std::byte> kept_;
  bool keep_ = false;
};

}  // namespace lockstep::messages
