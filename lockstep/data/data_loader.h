// make_data_loader: batches of a data set in a sampler's order, made ahead on threads.
//
//   DistributedSampler sampler(train.size());
//   auto loader = make_data_loader(train, sampler, {.batch_size = 64, .workers = 2});
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     sampler.set_epoch(epoch);                          // the loader sees it: it refers to this sampler
//     for (auto& batch : loader) step(batch.data, batch.target);
//   }
//
// Order       the sampler's, for any number of workers.
// Lifetime    The sampler must outlive the loader. So must the data set, unless it was passed as a temporary.
//             The threads live as long as the loop: leaving it early, by break or by an exception, ends them.
// Resuming    Save sampler.state() after batch k, and call load_state() later: the next loop starts with
//             batch k + 1. Batches that were only prefetched do not count.
// Epochs      A data set with get_batch(indices, epoch) is given the sampler's epoch (data/dataset.h).
// Virtual     ranks (job/virtual_ranks.h): the first batch of each virtual rank of this process, then the
//             second of each. virtual_steps() takes them in this order.
// Fails       An exception of get_batch leaves the loop when its batch is due. InvalidArgument: options out
//             of range, or set_epoch() to another epoch within a loop.
// libtorch    For its data sets see data/torch_dataset.h. Its loader takes a DistributedSampler.
// Threads     One thread loops. get_batch is called on several threads, but never on more than `workers`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/data/pin_memory.h"
#include "lockstep/data/prefetcher.h"

namespace lockstep {

struct DataLoaderOptions {
  std::int64_t batch_size = 64;
  int workers = 2;          // number of threads; 0: the loop itself makes the batches
  bool drop_last = false;   // leaves out a last batch that is not full
  int prefetch_factor = 2;  // batches ahead per worker
  bool pin_memory = false;  // puts batches into page-locked memory, for copies to a GPU: data/pin_memory.h
};

// Throws InvalidArgument.
void check_data_loader_options(const DataLoaderOptions& options);

// The part of a pass that does not depend on the data set: the order of the indices. Used by DataLoader.
class BatchPlan {
 public:
  BatchPlan(DistributedSampler& sampler, const DataLoaderOptions& options);

  std::int64_t batches() const { return batches_; }
  std::int64_t epoch() const { return epoch_; }
  std::span<const std::int64_t> indices_of(std::int64_t batch) const;
  void hand_out(std::int64_t batch);  // tells the sampler

 private:
  DistributedSampler* sampler_;
  std::vector<std::int64_t> indices_;  // those of the epoch, one replica's after the other's
  std::int64_t replicas_;
  std::int64_t each_;  // number of indices of one replica
  std::int64_t epoch_;
  std::int64_t batch_size_;
  std::int64_t start_;
  std::int64_t batches_;
};

template <typename Data> class DataLoader {  // Data: a data set, or a reference to one
  struct Pass;

 public:
  using BatchType = decltype(get_batch(std::declval<const Data&>(), std::span<const std::int64_t>(), 0));

  DataLoader(Data&& dataset, DistributedSampler& sampler, const DataLoaderOptions& options)
      : dataset_(std::forward<Data>(dataset)), sampler_(&sampler), options_(options) {
    check_data_loader_options(options_);
    if (options_.pin_memory) why_not_pinned_ = begin_to_pin(Pinnable<BatchType>);
  }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = BatchType;
    using difference_type = std::ptrdiff_t;
    using pointer = BatchType*;
    using reference = BatchType&;

    explicit Iterator(const DataLoader& loader) : pass_(std::make_shared<Pass>(loader)) { ++*this; }
    BatchType& operator*() const { return *pass_->current; }
    BatchType* operator->() const { return &*pass_->current; }
    Iterator& operator++() {
      pass_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !pass_->current; }

   private:
    std::shared_ptr<Pass> pass_;
  };

  // A new pass over the epoch. Only one at a time.
  Iterator begin() const { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

  // Number of batches of a whole epoch, of all ranks that the sampler serves.
  std::int64_t size() const {
    const std::int64_t items = sampler_->size();
    const std::int64_t each = options_.drop_last ? items / options_.batch_size
                                                 : (items + options_.batch_size - 1) / options_.batch_size;
    return each * static_cast<std::int64_t>(replicas());
  }
  std::size_t replicas() const { return sampler_->replicas(); }
  const DataLoaderOptions& options() const { return options_; }
  // "" if batches are pinned, else the reason why not.
  const std::string& why_not_pinned() const { return why_not_pinned_; }

 private:
  struct Pass {
    explicit Pass(const DataLoader& loader)
        : plan(*loader.sampler_, loader.options_),
          batches({.count = plan.batches(),
                   .workers = loader.options_.workers,
                   .ahead = std::max(1, loader.options_.workers * loader.options_.prefetch_factor)},
                  [this, &loader](std::int64_t i) { return loader.make_batch(plan, i); }) {}

    void advance() {
      current.reset();
      if (!batches.has_next()) return;
      const std::int64_t batch = handed_out++;
      current.emplace(batches.next());
      plan.hand_out(batch);
    }

    BatchPlan plan;
    std::int64_t handed_out = 0;
    std::optional<BatchType> current;
    Prefetcher<BatchType> batches;
  };

  BatchType make_batch(const BatchPlan& plan, std::int64_t i) const {
    BatchType batch = get_batch(dataset_, plan.indices_of(i), plan.epoch());
    if constexpr (Pinnable<BatchType>) {
      if (why_not_pinned_.empty()) return batch.pin_memory();
    }
    return batch;
  }

  Data dataset_;
  DistributedSampler* sampler_;
  DataLoaderOptions options_;
  std::string why_not_pinned_ = "pin_memory is not set";
};

template <typename Data>
requires Dataset<std::remove_reference_t<Data>> DataLoader<Data> make_data_loader(
    Data&& dataset, DistributedSampler& sampler, const DataLoaderOptions& options = {}) {
  return DataLoader<Data>(std::forward<Data>(dataset), sampler, options);
}

}  // namespace lockstep
