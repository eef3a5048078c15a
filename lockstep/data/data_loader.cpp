#include "lockstep/data/data_loader.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

void check_data_loader_options(const DataLoaderOptions& options) {
  constexpr int MOST = 1024;
  const auto check = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most)
      throw InvalidArgument(
          str("make_data_loader: ", name, " is ", value, ", expected ", least, " to ", most));
  };
  check("batch_size", options.batch_size, 1, std::int64_t{1} << 40);
  check("workers", options.workers, 0, MOST);
  check("prefetch_factor", options.prefetch_factor, 1, MOST);
}

BatchPlan::BatchPlan(DistributedSampler& sampler, const DataLoaderOptions& options)
    : sampler_(&sampler),
      indices_(sampler.indices()),
      replicas_(static_cast<std::int64_t>(sampler.replicas())),
      each_(sampler.size()),
      epoch_(sampler.epoch()),
      batch_size_(options.batch_size),
      start_(sampler.start_pass()) {
  const std::int64_t left = each_ - start_;
  batches_ = (options.drop_last ? left / batch_size_ : (left + batch_size_ - 1) / batch_size_) * replicas_;
}

std::span<const std::int64_t> BatchPlan::indices_of(std::int64_t batch) const {
  const std::int64_t begin = start_ + batch / replicas_ * batch_size_;
  const std::int64_t count = std::min(batch_size_, each_ - begin);
  const std::int64_t place = batch % replicas_ * each_ + begin;
  return std::span(indices_).subspan(static_cast<std::size_t>(place), static_cast<std::size_t>(count));
}

void BatchPlan::hand_out(std::int64_t batch) {
  if (sampler_->epoch() != epoch_)
    throw InvalidArgument(str("DataLoader: set_epoch(", sampler_->epoch(),
                              ") was called within a loop over epoch ", epoch_, "; call it between loops"));
  if (batch % replicas_ == replicas_ - 1)  // all replicas have had a batch of this step
    sampler_->advance(static_cast<std::int64_t>(indices_of(batch).size()));
}

}  // namespace lockstep
