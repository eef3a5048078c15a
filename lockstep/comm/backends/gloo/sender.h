// Sender: the writing half of a line (line.h). When few packets are free, a thread waits until Gloo has
// released some.
//
// Data in the kernel need not arrive. If this side closes while the other side writes (it requests packets
// again), the connection is reset and data on its way is lost. So flushed() asks whether all has been read
// (HAVE_YOU_READ) and waits for the answer (HAVE_READ). Room for these two packets is reserved.
//
// Threads: one at a time, except for the functions that need the bell's lock.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <thread>

#include "lockstep/comm/backends/gloo/line.h"
#include "lockstep/comm/backends/gloo/packets.h"

namespace lockstep::gloo {

class Sender {
 public:
  explicit Sender(Line& line) : line_(line) {}

  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  // Copies as much as there is room for.
  Streams::Moved send(const std::array<std::span<const std::byte>, 2>& parts);
  // Returns whether the other side has read everything that was sent, or is gone. Asks the other side.
  bool flushed();
  void want_write(bool wanted);
  // Answers the question whether this side has read. Returns null, or the reason why it cannot.
  const char* answer() { return send_packet(HAVE_READ, 0); }
  void note_answer();

  bool is_writable() const { return wants_write_ && has_room(); }  // with the bell's lock held

 private:
  bool has_room() const { return sent_ - gone_ < SLOTS - KEPT; }
  const char* send_packet(std::uint64_t length, std::size_t payload);
  void run();
  bool wait_for_one();

  Line& line_;
  std::thread thread_;
  std::uint64_t written_ = 0;  // packets of data that were written
  std::uint64_t known_ = 0;    // of these, packets that the other side has confirmed as read
  std::uint64_t asked_ = 0;    // value of written_ about which the other side is being asked; 0: none
  // guarded by the bell's lock
  bool wants_write_ = false;
  bool drains_ = false;     // the thread must wait until Gloo has released packets
  std::uint64_t sent_ = 0;  // packets given to Gloo
  std::uint64_t gone_ = 0;  // of these, packets that Gloo has released
};

}  // namespace lockstep::gloo
