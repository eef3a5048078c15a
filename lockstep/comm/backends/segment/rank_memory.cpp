#include "lockstep/comm/backends/segment/rank_memory.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "lockstep/os/fork_generation.h"

namespace lockstep::shared {
namespace {

Presence presence_of(const Control& control, int rank) {
  return static_cast<Presence>(control.rank_line(rank).presence.load(std::memory_order_acquire));
}

bool all_finished(const Control& control, int size, std::uint64_t sequence) {
  for (int r = 0; r < size; ++r) {
    if (control.rank_line(r).finished.load(std::memory_order_acquire) < sequence && !has_left(control, r))
      return false;
  }
  return true;
}

bool has_failed(const Control& control) {
  return control.header().failure_state.load(std::memory_order_relaxed) !=
         static_cast<std::uint32_t>(FailureState::NONE);
}

// Stands in front of a common block.
struct alignas(128) CommonHeader {
  std::atomic<std::uint32_t> holders;
};

CommonHeader& header_of(std::byte* block) {
  return *reinterpret_cast<CommonHeader*>(block - sizeof(CommonHeader));
}

// True for the last holder.
bool let_go(CommonHeader& header) { return header.holders.fetch_sub(1, std::memory_order_acq_rel) == 1; }

}  // namespace

std::shared_ptr<void> hold_common(std::shared_ptr<std::byte> memory) {
  std::byte* const block = memory.get();
  return {block, [memory = std::move(memory), made_in = fork_generation()](void*) {
            if (fork_generation() == made_in) let_go(header_of(memory.get()));
          }};
}

bool has_left(const Control& control, int rank) { return presence_of(control, rank) != Presence::JOINED; }

void free_finished(RetiredBlocks& blocks, Arena& arena, const Control& control, int rank, int size) {
  std::erase_if(blocks, [&](const Retired& block) {
    if (block.destination < 0) {
      if (!all_finished(control, size, block.number)) return false;
    } else {
      const auto& letter = control.letter(rank, block.destination, block.number);
      if (letter.taken.load(std::memory_order_acquire) <= block.number &&
          !has_left(control, block.destination))
        return false;
    }
    arena.free(block.offset);
    return true;
  });
}

std::size_t RankMemory::make_control(int size) {
  const std::size_t bytes = Control::bytes(size);
  const std::size_t offset = arena.allocate(bytes);
  std::memset(arena.at(offset), 0, bytes);
  const Control control(arena.at(offset), size, /*fresh=*/true);
  const std::lock_guard lock(mutex_);
  owned_.push_back({offset, size});
  return offset;
}

void RankMemory::discard_control(std::size_t offset) {
  const std::lock_guard lock(mutex_);
  std::erase_if(owned_, [&](const Owned& group) { return group.offset == offset; });
  arena.free(offset);
}

std::shared_ptr<void> RankMemory::make_common(const std::shared_ptr<RankMemory>& own, std::size_t bytes,
                                              int holders) {
  own->settle();
  const std::size_t offset = own->arena.allocate(sizeof(CommonHeader) + bytes);
  std::byte* const block = own->arena.at(offset) + sizeof(CommonHeader);
  header_of(block).holders.store(static_cast<std::uint32_t>(holders), std::memory_order_release);
  return {block, [own, offset, made_in = fork_generation()](void*) {
            if (fork_generation() == made_in) own->let_go_of_common(offset);
          }};
}

void RankMemory::let_go_of_common(std::size_t offset) {
  if (let_go(header_of(arena.at(offset) + sizeof(CommonHeader)))) return arena.free(offset);
  const std::lock_guard lock(mutex_);
  common_.push_back(offset);
}

void RankMemory::leave(Left group) {
  const std::lock_guard lock(mutex_);
  if (!is_gone(group)) left_.push_back(std::move(group));
}

void RankMemory::settle() {
  const std::lock_guard lock(mutex_);
  std::erase_if(left_, [&](Left& group) { return is_gone(group); });
  std::erase_if(owned_, [&](const Owned& group) { return is_over(group); });
  std::erase_if(common_, [&](std::size_t offset) {
    const CommonHeader& header = header_of(arena.at(offset) + sizeof(CommonHeader));
    if (header.holders.load(std::memory_order_acquire) > 0) return false;
    arena.free(offset);
    return true;
  });
}

void RankMemory::add_group(const std::shared_ptr<Helped>& group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const auto& other) { return other.expired(); });
  groups_.push_back(group);
}

void RankMemory::help_groups() {
  std::vector<std::weak_ptr<Helped>> groups;
  {
    const std::lock_guard lock(mutex_);
    if (groups_.size() < 2) return;
    groups = groups_;
  }
  for (const auto& group : groups) {
    if (const auto alive = group.lock()) alive->help_this();
  }
}

bool RankMemory::is_gone(Left& group) {
  if (has_failed(group.control)) return true;  // a failed group is never over, and gives nothing back
  free_finished(group.blocks, arena, group.control, group.rank, group.size);
  if (!group.blocks.empty()) return false;
  group.control.rank_line(group.rank)
      .presence.store(static_cast<std::uint32_t>(Presence::GONE), std::memory_order_release);
  return true;
}

bool RankMemory::is_over(const Owned& group) {
  const Control control(arena.at(group.offset), group.size, /*fresh=*/false);
  if (has_failed(control)) return true;
  for (int r = 0; r < group.size; ++r) {
    if (presence_of(control, r) != Presence::GONE) return false;
  }
  arena.free(group.offset);
  return true;
}

}  // namespace lockstep::shared
