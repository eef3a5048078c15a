// RankSet: some of a group's ranks. Does not allocate for groups of up to 64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::shared {

class RankSet {
 public:
  explicit RankSet(int size) : size_(size) {
    if (size > 64) more_.resize(static_cast<std::size_t>(size));
  }

  bool contains(int rank) const {
    return size_ > 64 ? more_[static_cast<std::size_t>(rank)]
                      : (first_ >> static_cast<unsigned>(rank) & 1U) != 0;
  }
  void insert(int rank) {
    if (contains(rank)) return;
    ++count_;
    if (size_ > 64) {
      more_[static_cast<std::size_t>(rank)] = true;
    } else {
      first_ |= std::uint64_t{1} << static_cast<unsigned>(rank);
    }
  }
  bool full() const { return count_ == size_; }

 private:
  int size_;
  int count_ = 0;
  std::uint64_t first_ = 0;
  std::vector<bool> more_;
};

}  // namespace lockstep::shared
