// Connection: exchanges frames between this process and one other process, over one link (link.h). It never
// blocks.
//
//   Outgoing     frames in the order posted, and between two of them chunks of large messages (outgoing.h)
//   Incoming     bytes of the link, cut into frames (incoming.h)
//   Pulls        large messages that are read out of the memory of a process of the same machine (pulls.h)
//
// The connection answers what concerns single transfers. An ACCEPT that arrives lets chunks go out. A pulled
// message is confirmed. A small message that the receiver has released gives its sender credit. All other
// frames go to a FrameReceiver.
//
// Threads: all functions are called with the fabric's lock held.
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

// The object to which a connection hands frames.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  struct Destination {
    std::shared_ptr<Receive> receive;  // the receive that waits for the payload, or null
    bool keep = false;                 // whether arrived() wants the payload; otherwise it is dropped
  };
  // The connection to `peer` has a message to pull().
  virtual void has_to_pull(int peer) = 0;
  // Returns the destination of the payload of this MESSAGE.
  virtual Destination place_for(int peer, const Header& header) = 0;
  // A whole frame has arrived: a kept MESSAGE, OFFER, CALL, FAILURE or GOODBYE.
  virtual void arrived(int peer, const Header& header, std::vector<std::byte> payload) = 0;

 protected:
  FrameReceiver() = default;
  FrameReceiver(const FrameReceiver&) = default;
  FrameReceiver& operator=(const FrameReceiver&) = default;
};

class Connection {
 public:
  // `peer` is the number that the receiver is told. `memory` is the other process's memory, if this process
  // can read it.
  Connection(std::unique_ptr<Link> link, int peer, FrameReceiver& receiver,
             const std::optional<PeerMemory>& memory = std::nullopt);

  // Writes at once as much as the link takes.
  void post(const Header& header, const std::string& text = {}) { outgoing_.post(header, text); }
  void post(const std::shared_ptr<Send>& send) { outgoing_.post(send); }
  // Asks for the message of an OFFER. `payload` is the OFFER's payload.
  void accept(const Header& offer, std::span<const std::byte> payload,
              const std::shared_ptr<Receive>& receive);
  // Reads one piece of the other process's memory. Returns false when nothing is left to read.
  bool pull();
  // The receiver has released the memory of a kept MESSAGE.
  void consumed(std::size_t bytes);
  // After this returns, the connection neither touches the send's memory nor calls its owner.
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
  // Returns the sends of a closed connection that were not completed, and never will be.
  std::vector<std::shared_ptr<Send>> abandoned() { return outgoing_.abandoned(); }
  // Everything posted has reached the peer's kernel, or will leave this process even if the process ends
  // next.
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
