// Receiver: the reading half of a line (line.h). Its thread connects, then counts the packets that arrive.
//
// All packets of the incoming ring are requested from Gloo beforehand. A packet that has been read is
// requested again. Gloo sends nothing that was not requested, so a rank that does not read stops the rank
// that writes to it.
//
// Gloo reports a broken connection only to a wait for something that arrives. So each line also waits for a
// packet that never comes (WATCH).
//
// Threads: one at a time, except for the functions that need the bell's lock.
#pragma once

#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "lockstep/comm/backends/gloo/line.h"
#include "lockstep/comm/backends/gloo/sender.h"

namespace lockstep::gloo {

class Receiver {
 public:
  // `sender` is that of the same line. It answers questions that come in.
  Receiver(Line& line, Sender& sender) : line_(line), sender_(sender) {}

  // `theirs` is the address where the other rank listens for this one.
  void start(std::span<const char> theirs) {
    theirs_.assign(theirs.begin(), theirs.end());
    thread_ = std::thread([this] { run(); });
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  Streams::Moved receive(std::span<std::byte> buffer);

  bool is_readable() const { return arrived_ > taken_ || line_.has_ended(); }  // with the bell's lock held

 private:
  Streams::Moved obey(std::uint64_t word);
  void take(std::size_t offset);
  void run();
  void count_arrivals();

  Line& line_;
  Sender& sender_;
  std::vector<char> theirs_;
  std::thread thread_;
  std::size_t read_ = 0;  // bytes of the current packet that have been read
  // guarded by the bell's lock
  std::uint64_t arrived_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace lockstep::gloo
