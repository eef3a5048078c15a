// Doorbell: wakes the threads of a group that sleep between cycles. Cycles are numbered alike on every rank.
//
//   Doorbell bell(group);                          // collective
//   bell.begin(cycle);                             // this rank goes into the cycle: all others are woken
//   bell.ring();                                   // from any thread: wakes this rank's own sleeper
//   const auto heard = bell.rings();
//   if (!has_news() && !bell.is_begun(cycle)) bell.sleep(heard, 1ms);
//
// Ranks with memory in common (allocate_common) wake each other. Elsewhere begin() is not heard, and a
// sleeper must look by the clock: is_shared() tells.
//
// Memory order: begin() writes the cycle's number before it rings. A sleeper reads rings() before it looks,
// so a ring after that makes sleep() return at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "lockstep/comm/process_group.h"

namespace lockstep::named {

class Doorbell {
 public:
  explicit Doorbell(const ProcessGroup& group);

  bool is_shared() const { return common_ != nullptr; }
  void begin(std::uint64_t cycle);
  bool is_begun(std::uint64_t cycle) const;

  void ring() { ring(rank_); }
  std::uint32_t rings() const;
  void sleep(std::uint32_t heard, std::chrono::nanoseconds longest);

 private:
  struct alignas(64) Word {
    std::atomic<std::uint32_t> rings;
    std::atomic<std::uint64_t> begun;  // the newest cycle that this rank has begun, plus 1
  };
  Word& word(int rank) const { return words_[rank]; }
  void ring(int rank) const;

  int rank_;
  int size_;
  std::shared_ptr<void> common_;
  std::shared_ptr<void> own_;
  Word* words_;  // one for each rank; without common memory, this rank's alone counts
};

}  // namespace lockstep::named
