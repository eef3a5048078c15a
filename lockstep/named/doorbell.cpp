#include "lockstep/named/doorbell.h"

#include <algorithm>

#include "lockstep/base/running_clock.h"
#include "lockstep/comm/collectives/common_memory.h"
#include "lockstep/os/futex.h"

namespace lockstep::named {

Doorbell::Doorbell(const ProcessGroup& group) : rank_(group.rank()), size_(group.size()) {
  const auto count = static_cast<std::size_t>(size_);
  common_ = comm::allocate_common(group, count * sizeof(Word));
  if (common_ == nullptr) own_ = std::shared_ptr<Word[]>(new Word[count]());
  words_ = static_cast<Word*>(common_ != nullptr ? common_.get() : own_.get());
}

void Doorbell::begin(std::uint64_t cycle) {
  word(rank_).begun.store(cycle + 1, std::memory_order_release);
  if (!is_shared()) return;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && word(r).begun.load(std::memory_order_relaxed) <= cycle) ring(r);
  }
}

bool Doorbell::is_begun(std::uint64_t cycle) const {
  for (int r = 0; r < size_; ++r) {
    if (word(r).begun.load(std::memory_order_acquire) > cycle) return true;
  }
  return false;
}

void Doorbell::ring(int rank) const {
  word(rank).rings.fetch_add(1, std::memory_order_acq_rel);
  futex_wake_all(word(rank).rings);
}

std::uint32_t Doorbell::rings() const { return word(rank_).rings.load(std::memory_order_acquire); }

void Doorbell::sleep(std::uint32_t heard, std::chrono::nanoseconds longest) {
  const auto asked = std::min<std::chrono::nanoseconds>(longest, LONGEST_NAP);
  const Nap nap(asked);
  futex_wait(word(rank_).rings, heard, asked);
}

}  // namespace lockstep::named
