// Connection: the frames between this process and one other, over one link (link.h), which never blocks.
//
//   outgoing     frames in the order posted, and between two of them chunks of large messages that were accepted, in turn
//   incoming     a frame's payload goes straight into the buffer that waits for it, else into memory of its own
//
//            post(send) --fits the window--> MESSAGE in the queue -------------------------> sent
//                       --else-------------> OFFER, waits for ACCEPT --> CHUNK, CHUNK, ... -> sent
//
// Threads: all functions with the fabric's lock.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/backends/link.h"
#include "lockstep/comm/backends/tcp_transfer.h"

namespace lockstep::tcp {

// Whom a connection hands frames to.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  struct Destination {
    std::shared_ptr<Receive> receive;  // who waits for it, or
    bool keep = false;                 // whether arrived() wants the payload; else it is dropped
  };
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
  // `peer` is what the receiver is told.
  Connection(std::unique_ptr<Link> link, int peer, FrameReceiver& receiver);

  // Writes at once what the link takes.
  void post(Header header, const std::string& text = {});
  void post(const std::shared_ptr<Send>& send);
  // Asks for the message of an OFFER.
  void accept(const Header& offer, const std::shared_ptr<Receive>& receive);
  // The memory of a kept MESSAGE is free again.
  void consumed(std::size_t bytes);
  // `owner` lets go of the transfer; its memory is not touched after this returns.
  void cancel(Send& send);
  void cancel(Receive& receive);

  void read();
  void write();

  bool closed() const { return !closed_because_.empty(); }
  const std::string& closed_because() const { return closed_because_; }
  void close(const std::string& reason);
  // Of a closed connection: sends that never got through, and never will.
  std::vector<std::shared_ptr<Send>> abandoned();
  // Everything posted has reached the other side's kernel, or leaves this process even if it ends next.
  bool flushed() const;

 private:
  struct Frame {
    Header header;
    std::vector<std::byte> owned;        // the payload, or
    std::shared_ptr<Send> send;          // whose data it is a part of
    std::span<const std::byte> payload;  // where it is
    void own();                          // makes a copy, so that the send's data is not needed
  };

  bool next_frame();
  void finish_written();
  void receive();
  void parse();
  void begin_frame();
  void take_staged();
  void take_payload(std::size_t bytes);
  std::span<std::byte> payload_target();
  void finish_frame();
  void start_stream(const Header& accepted);

  const std::unique_ptr<Link> link_;
  const int peer_;
  FrameReceiver& receiver_;
  std::string closed_because_;
  // outgoing
  std::deque<Frame> queue_;
  std::optional<Frame> current_;
  std::size_t current_written_ = 0;
  std::map<std::uint32_t, std::shared_ptr<Send>> offered_;
  std::deque<std::shared_ptr<Send>> streams_;  // accepted
  std::uint32_t last_transfer_ = 0;
  std::size_t in_window_ = 0;  // cost of MESSAGEs that the receiver may still hold
  bool broken_ = false;        // writing fails; reading will tell why
  bool wants_write_ = false;
  // incoming
  std::vector<std::byte> staging_;
  std::size_t staged_begin_ = 0;
  std::size_t staged_end_ = 0;
  bool in_payload_ = false;
  Header header_;
  std::size_t payload_left_ = 0;
  std::shared_ptr<Receive> receive_;
  std::vector<std::byte> kept_;
  bool keep_ = false;
  std::map<std::uint32_t, std::shared_ptr<Receive>> accepted_;
  std::size_t not_credited_ = 0;
};

}  // namespace lockstep::tcp
