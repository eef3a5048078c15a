// Sender: the half of a line (line.h) that writes packets. A thread waits until Gloo needs a packet no more,
// when few are free.
//
// What the kernel has need not arrive: a connection closed on one side while the other side writes (it asks
// for packets again) is reset, and what was on its way is lost. So flushed() asks whether all has been read
// (HAVE_YOU_READ) and waits for the answer (HAVE_READ). For these two packets there is always room.
//
// Threads: one at a time, but for the functions that need the bell's lock.
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
  // Whether the other side has read all that was sent, or is gone; asks it.
  bool flushed();
  void want_write(bool wanted);
  // The other side has asked; it has read. Null, or why it cannot be told.
  const char* answer() { return send_packet(HAVE_READ, 0); }
  void note_answer();

  bool is_writable() const { return wants_write_ && has_room(); }  // with the bell's lock

 private:
  bool has_room() const { return sent_ - gone_ < SLOTS - KEPT; }
  const char* send_packet(std::uint64_t length, std::size_t payload);
  void run();
  bool wait_for_one();

  Line& line_;
  std::thread thread_;
  std::uint64_t written_ = 0;  // packets with bytes,
  std::uint64_t known_ = 0;    // those that have been read, as the other side said,
  std::uint64_t asked_ = 0;    // and those after which it is being asked; 0: it is not
  // guarded by the bell's lock
  bool wants_write_ = false;
  bool drains_ = false;     // the thread is to see packets go
  std::uint64_t sent_ = 0;  // packets given to Gloo,
  std::uint64_t gone_ = 0;  // and those of them that it needs no more
};

}  // namespace lockstep::gloo
