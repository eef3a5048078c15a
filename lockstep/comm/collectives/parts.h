// Lists of buffers, one per rank, for gather, scatter, reduce_scatter and all_to_all, and functions that cut
// one buffer into such a list. If the buffer cannot be cut as requested, the list is empty, and the verb
// refuses it with the reason.
//
//   even_parts(group, std::span<const float>(all), 10)  // all[0..9] for rank 0, all[10..19] for rank 1, ...
//   split_parts(std::span<const float>(all), {3, 0, 7})
#pragma once

#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

// The data that one rank gives: `count` elements of `dtype`.
struct Contribution {
  const void* data;
  std::size_t count;
  DType dtype;
};
// The buffer that one rank receives into.
struct Destination {
  void* data;
  std::size_t count;
  DType dtype;
};

template <typename T> Contribution contribution(std::span<const T> data) {
  return {data.data(), data.size(), dtype_of<T>()};
}
template <typename T> Destination destination(std::span<T> data) {
  return {data.data(), data.size(), dtype_of<T>()};
}

// std::byte; const if T is const.
template <typename T> using BytesLike = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;

template <typename T> std::span<BytesLike<T>> bytes_of(std::span<T> part) {
  return {reinterpret_cast<BytesLike<T>*>(part.data()), part.size_bytes()};
}
template <typename T> std::vector<std::span<BytesLike<T>>> bytes_of(const std::vector<std::span<T>>& parts) {
  std::vector<std::span<BytesLike<T>>> bytes;
  for (const auto& part : parts) bytes.push_back(bytes_of(part));
  return bytes;
}

template <typename T>
std::vector<std::span<BytesLike<T>>> even_parts(const ProcessGroup& group, std::span<T> all,
                                                std::size_t count) {
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::span<BytesLike<T>>> parts;
  if (all.size() != ranks * count) return parts;
  for (std::size_t r = 0; r < ranks; ++r) parts.push_back(bytes_of(all.subspan(r * count, count)));
  return parts;
}

// One buffer, which the verb cuts itself.
template <typename T>
std::vector<std::span<BytesLike<T>>> whole(const ProcessGroup& group, std::span<T> all, std::size_t count) {
  if (all.size() != static_cast<std::size_t>(group.size()) * count) return {};
  return {bytes_of(all)};
}

template <typename T>
std::vector<std::span<BytesLike<T>>> split_parts(std::span<T> all, std::span<const std::size_t> counts) {
  std::vector<std::span<BytesLike<T>>> parts;
  if (std::accumulate(counts.begin(), counts.end(), std::size_t{0}) != all.size()) return parts;
  for (const std::size_t count : counts) {
    parts.push_back(bytes_of(all.first(count)));
    all = all.subspan(count);
  }
  return parts;
}

}  // namespace comm
}  // namespace lockstep
