// A data set is any class that knows its size and makes a batch of its items. No base class is needed.
//
//   struct Squares {
//     std::int64_t size() const { return 1000; }
//     Batch get_batch(std::span<const std::int64_t> indices) const;  // or any other type instead of Batch
//   };
//
// A data set whose items are drawn anew in each epoch (augmented images, windows at random places) has
// get_batch(indices, epoch) instead. A loader passes the epoch of its sampler. The same seed, epoch and index
// give the same item, on any rank and any thread, so no state is kept: see data/sample_random.h.
//
// Threads     get_batch is const, and is called on several threads of a loader at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <span>

namespace lockstep {

struct Batch {
  at::Tensor data;
  at::Tensor target;

  Batch pin_memory() const { return {data.pin_memory(), target.pin_memory()}; }
};

enum class Split { TRAIN, TEST };

// A data set whose items differ from epoch to epoch.
template <typename T>
concept EpochDataset = requires(const T& dataset, std::span<const std::int64_t> indices) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  dataset.get_batch(indices, std::int64_t{0});
};

template <typename T>
concept Dataset = EpochDataset<T> || requires(const T& dataset, std::span<const std::int64_t> indices) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  dataset.get_batch(indices);
};

// Makes a batch of either kind of data set.
template <Dataset T>
auto get_batch(const T& dataset, std::span<const std::int64_t> indices, std::int64_t epoch) {
  if constexpr (EpochDataset<T>) {
    return dataset.get_batch(indices, epoch);
  } else {
    return dataset.get_batch(indices);
  }
}

}  // namespace lockstep
