// torch_dataset: makes a stateless data set of libtorch, with its transforms, usable by our loader.
// make_data_loader() calls it.
//
//   auto set = torch::data::datasets::MNIST(folder).map(torch::data::transforms::Stack<>());
//   dist::DistributedSampler sampler(*set.size());
//   auto loader = dist::make_data_loader(std::move(set), sampler, {.batch_size = 64});
//   for (auto& batch : loader) step(batch.data, batch.target);            // what libtorch's loader gives:
//                                                                         // here an Example<>
//
// libtorch's loader takes our sampler directly: torch::data::make_data_loader(set, sampler, options).
//
// Threads     libtorch's data sets need not be safe to call from several threads. So each busy worker has a
//             copy of its own, as in libtorch's loader. A copy must be cheap (tensors are shared).
// Fails       InvalidArgument: a data set that does not know its size. An exception of its get_batch() leaves
//             the loop.
// Limits      no stateful data sets (ChunkDataset), because they choose their order themselves, without a
//             sampler.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/data_loader.h"

namespace lockstep {

template <typename T>
concept StatelessTorchDataset = std::copy_constructible<T> &&
    requires(T& dataset, std::vector<std::size_t> indices) {
  requires !T::is_stateful;
  { dataset.get_batch(indices) } -> std::convertible_to<typename T::BatchType>;
  { dataset.size().has_value() } -> std::convertible_to<bool>;
};

template <StatelessTorchDataset Data> class TorchDataset {
 public:
  explicit TorchDataset(Data dataset) : shared_(std::make_shared<Shared>(std::move(dataset))) {
    const auto size = shared_->original.size();
    if (!size)
      throw InvalidArgument(
          "make_data_loader: the data set does not know its size, so ranks cannot share it");
    size_ = static_cast<std::int64_t>(*size);
  }

  std::int64_t size() const { return size_; }
  typename Data::BatchType get_batch(std::span<const std::int64_t> indices) const {
    std::unique_ptr<Data> copy = shared_->take();
    const std::shared_ptr<void> back(nullptr, [&](void*) { shared_->give_back(std::move(copy)); });
    return copy->get_batch(std::vector<std::size_t>(indices.begin(), indices.end()));
  }

 private:
  struct Shared {
    explicit Shared(Data dataset) : original(std::move(dataset)) {}
    std::unique_ptr<Data> take() {
      const std::lock_guard lock(mutex);
      if (idle.empty()) return std::make_unique<Data>(original);
      auto copy = std::move(idle.back());
      idle.pop_back();
      return copy;
    }
    void give_back(std::unique_ptr<Data> copy) {
      const std::lock_guard lock(mutex);
      idle.push_back(std::move(copy));
    }
    const Data original;
    std::mutex mutex;
    std::vector<std::unique_ptr<Data>> idle;  // copies that no thread is using
  };

  std::shared_ptr<Shared> shared_;
  std::int64_t size_ = 0;
};

// Takes the data set by value, as libtorch does.
template <StatelessTorchDataset Data>
DataLoader<TorchDataset<Data>> make_data_loader(Data dataset, DistributedSampler& sampler,
                                                const DataLoaderOptions& options = {}) {
  return make_data_loader(TorchDataset<Data>(std::move(dataset)), sampler, options);
}

}  // namespace lockstep
