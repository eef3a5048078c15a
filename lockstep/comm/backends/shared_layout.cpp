#include "lockstep/comm/backends/shared_layout.h"

#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/futex.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t HEADER_BYTES = (sizeof(Header) + LINE - 1) / LINE * LINE;

std::size_t ranks_at() { return HEADER_BYTES; }
std::size_t slots_at(std::size_t size) { return ranks_at() + size * sizeof(RankLine); }
std::size_t posts_at(std::size_t size) { return slots_at(size) + SLOTS * sizeof(Slot); }
std::size_t letters_at(std::size_t size) { return posts_at(size) + SLOTS * size * sizeof(PostLine); }

template <typename T> void construct(std::byte* at, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) new (at + i * sizeof(T)) T;
}

}  // namespace

std::size_t Control::bytes(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return letters_at(ranks) + ranks * ranks * LETTERS * sizeof(Letter);
}

Control::Control(std::byte* base, int size, bool fresh) : base_(base), size_(static_cast<std::size_t>(size)) {
  if (fresh) {
    construct<RankLine>(base_ + ranks_at(), size_);
    construct<Slot>(base_ + slots_at(size_), SLOTS);
    construct<PostLine>(base_ + posts_at(size_), SLOTS * size_);
    construct<Letter>(base_ + letters_at(size_), size_ * size_ * LETTERS);
    construct<Header>(base_, 1);
    header().size = static_cast<std::uint32_t>(size);
  } else if (header().magic != MAGIC || header().size != size_) {
    throw InternalError(str("shared memory: the control segment is not one for ", size, " ranks"));
  }
}

Header& Control::header() const { return *std::launder(reinterpret_cast<Header*>(base_)); }

RankLine& Control::rank_line(int rank) const { return reinterpret_cast<RankLine*>(base_ + ranks_at())[rank]; }

Slot& Control::slot(std::uint64_t sequence) const {
  return reinterpret_cast<Slot*>(base_ + slots_at(size_))[sequence % SLOTS];
}

PostLine& Control::post_line(std::uint64_t sequence, int rank) const {
  return reinterpret_cast<PostLine*>(
      base_ + posts_at(size_))[sequence % SLOTS * size_ + static_cast<std::size_t>(rank)];
}

Letter& Control::letter(int source, int destination, std::uint64_t number) const {
  const std::size_t pair = static_cast<std::size_t>(source) * size_ + static_cast<std::size_t>(destination);
  return reinterpret_cast<Letter*>(base_ + letters_at(size_))[pair * LETTERS + number % LETTERS];
}

void Control::ring() const {
  // Pairs with the fence of a rank that goes to sleep (backoff.h): either it sees the change, or this sees the sleeper.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (header().sleepers.load(std::memory_order_relaxed) == 0) return;
  header().doorbell.fetch_add(1, std::memory_order_release);
  futex_wake_all(header().doorbell);
}

}  // namespace lockstep::shared
