// Connection: the frames between this process and one other, over one link (link.h), which never blocks.
//
//   Outgoing     frames in the order posted, and between two of them chunks of large messages (outgoing.h)
//   Incoming     bytes of the link, cut into frames (incoming.h)
//   Pulls        large messages that are read out of the memory of a process of the same machine (pulls.h)
//
// The connection carries what one says to another: an ACCEPT that came in lets chunks go out, a pulled
// message is answered, and a small message that the receiver took out of its memory gives the sender credit.
// It hands all other frames to a FrameReceiver.
//
// Threads: all functions with the fabric's lock.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/backends/messages/incoming.h"
#include "lockstep/comm/backends/messages/link.h"
#include "lockstep/comm/backends/messages/outgoing.h"
#include "lockstep/comm/backends/messages/pulls.h"
#include "lockstep/comm/backends/messages/transfer.h"

namespace lockstep::messages {

// Whom a connection hands frames to.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  struct Destination {
    std::shared_ptr<Receive> receive;  // who waits for it, or
    bool keep = false;                 // whether arrived() wants the payload; else it is dropped
  };
  // There is something to pull() over the connection to `peer`.
  virtual void has_to_pull(int peer) = 0;
  // Where the payload of this MESSAGE goes.
  virtual Destination place_for(int peer, const Header& header) = 0;
  // A whole frame: a kept MESSAGE, OFFER, CALL, FAILURE or GOODBYE.
  virtual void arrived(int peer, const Header& header, std::vector<std::byte> payload) = 0;

 protected:
  FrameReceiver() = default;
  FrameReceiver(const FrameReceiver&) = default;
  FrameReceiver& operator=(const FrameReceiver&) = default;
};

class Connection {
 public:
  // `peer` is what the receiver is told. `memory`: of the other process, if this one can read it.
  Connection(std::unique_ptr<Link> link, int peer, FrameReceiver& receiver,
             const std::optional<PeerMemory>& memory = std::nullopt);

  // Writes at once what the link takes.
  void post(const Header& header, const std::string& text = {}) { outgoing_.post(header, text); }
  void post(const std::shared_ptr<Send>& send) { outgoing_.post(send); }
  // Asks for the message of an OFFER, which came with `payload`.
  void accept(const Header& offer, std::span<const std::byte> payload,
              const std::shared_ptr<Receive>& receive);
  // Reads a piece of what lies in the other process. False when there is no more.
  bool pull();
  // The memory of a kept MESSAGE is free again.
  void consumed(std::size_t bytes);
  // `owner` lets go of the transfer; its memory is not touched after this returns.
  void cancel(Send& send) { outgoing_.cancel(send); }
  void cancel(Receive& receive);

  void read();
  void write() { outgoing_.write(); }
  std::chrono::milliseconds silent_for() const {
    return closed() ? std::chrono::milliseconds(0) : link_->silent_for();
  }

  bool closed() const { return end_ != StreamEnd::NONE; }
  StreamEnd end() const { return end_; }
  const std::string& closed_because() const { return closed_because_; }
  void close(StreamEnd end, const std::string& reason);
  // Of a closed connection: sends that never got through, and never will.
  std::vector<std::shared_ptr<Send>> abandoned() { return outgoing_.abandoned(); }
  // Everything posted has reached the other side's kernel, or leaves this process even if it ends next.
  bool flushed() const { return outgoing_.flushed(); }

 private:
  void receive();
  void begin_frame();
  void finish_frame();
  void break_off(const std::string& wrong);
  void ask_for(std::uint32_t transfer, const std::shared_ptr<Receive>& receive);

  const std::unique_ptr<Link> link_;
  const int peer_;
  FrameReceiver& receiver_;
  StreamEnd end_ = StreamEnd::NONE;
  std::string closed_because_;
  Outgoing outgoing_;
  Incoming incoming_;
  Pulls pulls_;
  std::map<std::uint32_t, std::shared_ptr<Receive>> accepted_;
  std::size_t not_credited_ = 0;
};

}  // namespace lockstep::messages
