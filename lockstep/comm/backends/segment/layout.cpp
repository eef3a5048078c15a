#include "lockstep/comm/backends/segment/layout.h"

#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/round_up.h"
#include "lockstep/base/str.h"
#include "lockstep/os/futex.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t HEADER_BYTES = round_up(sizeof(Header), LINE);

std::size_t ranks_at() { return HEADER_BYTES; }
std::size_t windows_at(std::size_t size) { return ranks_at() + size * sizeof(RankLine); }
std::size_t shares_at(std::size_t size) { return windows_at(size) + size * sizeof(WindowLine); }
std::size_t posts_at(std::size_t size) { return shares_at(size) + SLOTS * size * sizeof(Share); }
std::size_t letters_at(std::size_t size) { return posts_at(size) + SLOTS * size * sizeof(PostLine); }

template <typename T> void construct(std::byte* at, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) new (at + i * sizeof(T)) T;
}

}  // namespace

std::size_t Control::bytes(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return letters_at(ranks) + ranks * ranks * LETTERS * sizeof(Letter);
}

Control::Control(std::byte* base, int size, bool fresh)
    : base_(base),
      size_(static_cast<std::size_t>(size)),
      ranks_(reinterpret_cast<RankLine*>(base + ranks_at())),
      windows_(reinterpret_cast<WindowLine*>(base + windows_at(size_))),
      shares_(reinterpret_cast<Share*>(base + shares_at(size_))),
      posts_(reinterpret_cast<PostLine*>(base + posts_at(size_))) {
  if (fresh) {
    construct<RankLine>(base_ + ranks_at(), size_);
    construct<WindowLine>(base_ + windows_at(size_), size_);
    construct<Share>(base_ + shares_at(size_), SLOTS * size_);
    construct<PostLine>(base_ + posts_at(size_), SLOTS * size_);
    construct<Letter>(base_ + letters_at(size_), size_ * size_ * LETTERS);
    construct<Header>(base_, 1);
    header().size = static_cast<std::uint32_t>(size);
    header().paths = path_table();
  } else if (header().magic != MAGIC || header().size != size_) {
    throw InternalError(str("shared memory: the control segment is not one for ", size, " ranks"));
  }
}

Letter& Control::letter(int source, int destination, std::uint64_t number) const {
  const std::size_t pair = static_cast<std::size_t>(source) * size_ + static_cast<std::size_t>(destination);
  return reinterpret_cast<Letter*>(base_ + letters_at(size_))[pair * LETTERS + number % LETTERS];
}

void Control::ring() const {
  // Pairs with the fence of a rank that goes to sleep (backoff.h). Either that rank sees the change, or this
  // rank sees the sleeper.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ring_after_seq_cst();
}

void Control::ring_after_seq_cst() const {
  if (header().sleepers.load(std::memory_order_seq_cst) == 0) return;
  header().doorbell.fetch_add(1, std::memory_order_release);
  futex_wake_all(header().doorbell);
}

}  // namespace lockstep::shared
