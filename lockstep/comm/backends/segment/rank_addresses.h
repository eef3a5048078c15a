// RankAddresses: one address per rank, as the reduce kernels take them. Does not allocate for up to 16 ranks.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::shared {

template <typename Byte> class RankAddresses {
 public:
  explicit RankAddresses(int size) {
    if (static_cast<std::size_t>(size) > few_.size()) many_.reserve(static_cast<std::size_t>(size));
  }

  void add(Byte* address) {
    if (many_.capacity() > 0) {
      many_.push_back(address);
    } else {
      few_[count_++] = address;
    }
  }
  std::span<Byte* const> all() const {
    if (many_.capacity() > 0) return many_;
    return {few_.data(), count_};
  }

 private:
  std::array<Byte*, 16> few_;
  std::size_t count_ = 0;
  std::vector<Byte*> many_;
};

}  // namespace lockstep::shared
