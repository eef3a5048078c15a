// Receiver: the half of a line (line.h) that reads packets. Its thread connects, then counts the packets that
// arrive.
//
// All packets of the incoming ring are asked for beforehand, and one that has been read is asked for again.
// Gloo sends nothing that was not asked for, so a rank that does not read stops the rank that writes to it.
//
// Gloo tells of a broken connection where somebody waits for something to come, so each line waits for
// something that never comes (WATCH) as well.
//
// Threads: one at a time, but for the functions that need the bell's lock.
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
  // `sender`: of the same line, for questions and answers that come in.
  Receiver(Line& line, Sender& sender) : line_(line), sender_(sender) {}

  // `theirs`: the address where the other rank listens for this one.
  void start(std::span<const char> theirs) {
    theirs_.assign(theirs.begin(), theirs.end());
    thread_ = std::thread([this] { run(); });
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  Streams::Moved receive(std::span<std::byte> buffer);

  bool is_readable() const { return arrived_ > taken_ || line_.has_ended(); }  // with the bell's lock

 private:
  Streams::Moved obey(std::uint64_t word);
  void take(std::size_t offset);
  void run();
  void count_arrivals();

  Line& line_;
  Sender& sender_;
  std::vector<char> theirs_;
  std::thread thread_;
  std::size_t read_ = 0;  // of the packet that is being read
  // guarded by the bell's lock
  std::uint64_t arrived_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace lockstep::gloo
