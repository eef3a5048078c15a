// What a data set is: it knows its size and makes a batch of any of its items. No base class is needed.
//
//   struct Squares {
//     std::int64_t size() const { return 1000; }
//     Batch get_batch(std::span<const std::int64_t> indices) const;      // or any other type instead of Batch
//   };
//
// Threads     get_batch is const and is called on several threads of a loader at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <span>

namespace lockstep {

struct Batch {
  at::Tensor data;
  at::Tensor target;
};

template <typename T>
concept Dataset = requires(const T& dataset, std::span<const std::int64_t> indices) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  dataset.get_batch(indices);
};

}  // namespace lockstep
