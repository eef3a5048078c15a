// Connection: the frames between this process and one other, over one link (link.h), which never blocks.
//
//   outgoing     frames in the order posted, and between two of them chunks of large messages that were accepted, in turn
//   incoming     a frame's payload goes straight into the buffer that waits for it, else into memory of its own
//
//            post(send) --fits the window--> MESSAGE in the queue -------------------------> sent
//                       --else-------------> OFFER, waits for ACCEPT --> CHUNK, CHUNK, ... -> sent
//                                                   or for TAKEN of all of it, GIVEN ------> sent
//
// Memory     Two processes of one machine whose memory can be read (os/peer_memory.h) copy a large message once, instead of into the
//            kernel and out of it: pull() reads it, piece by piece. It counts as received when the sender has said that it had not
//            withdrawn it by then (GIVEN), because a caller whose call has failed may use its buffer again.
//
// Threads: all functions with the fabric's lock.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/backends/messages/link.h"
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
  void post(Header header, const std::string& text = {});
  void post(const std::shared_ptr<Send>& send);
  // Asks for the message of an OFFER, which came with `payload`.
  void accept(const Header& offer, std::span<const std::byte> payload,
              const std::shared_ptr<Receive>& receive);
  // Reads a piece of what lies in the other process. False when there is no more.
  bool pull();
  // The memory of a kept MESSAGE is free again.
  void consumed(std::size_t bytes);
  // `owner` lets go of the transfer; its memory is not touched after this returns.
  void cancel(Send& send);
  void cancel(Receive& receive);

  void read();
  void write();
  std::chrono::milliseconds silent_for() const {
    return closed() ? std::chrono::milliseconds(0) : link_->silent_for();
  }

  bool closed() const { return end_ != StreamEnd::NONE; }
  StreamEnd end() const { return end_; }
  const std::string& closed_because() const { return closed_because_; }
  void close(StreamEnd end, const std::string& reason);
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

  struct Pull {
    std::uint32_t transfer = 0;
    std::uint64_t address = 0;
    std::shared_ptr<Receive> receive;
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
  void ask_for(std::uint32_t transfer, const std::shared_ptr<Receive>& receive);
  void answer(Kind kind, std::uint32_t transfer, std::uint64_t bytes = 0);
  void taken(const Header& header);
  void given(const Header& header);

  const std::unique_ptr<Link> link_;
  const int peer_;
  FrameReceiver& receiver_;
  const std::optional<PeerMemory> memory_;
  StreamEnd end_ = StreamEnd::NONE;
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
  std::deque<Pull> pulls_;
  std::map<std::uint32_t, std::shared_ptr<Receive>> pulled_;  // all of it; was it there?
  std::size_t not_credited_ = 0;
};

}  // namespace lockstep::messages
