// EngineDataLoader: what engine.deepspeed_io() returns. It hands out this rank's batches of a data set, one
// for each forward pass.
//
//   namespace deepspeed = lockstep::compat::deepspeed;
//   auto [engine, optimizer, lr_scheduler] =
//       deepspeed::initialize(net, deepspeed::read_config("ds_config.json"));
//   auto loader = engine.deepspeed_io(train);     // of train_micro_batch_size_per_gpu samples
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     loader.set_epoch(epoch);
//     for (auto& batch : loader) {
//       engine.backward(cross_entropy(engine(batch.data), batch.target));
//       engine.step();
//     }
//   }
//
// Order        DistributedSampler's over the ranks of the engine's process_group, shuffled unless told
//              otherwise: index for index that of DeepSpeed, which uses torch's.
// Last batch   Each rank gets equally many samples: the first ones once more where they do not divide. A last
//              batch that is not full is left out if the configuration says "dataloader_drop_last".
// Accumulation goes on over the end of an epoch: a step takes gradient_accumulation_steps() batches,
//              whichever epoch they are of.
// Resuming     is data_sampler()'s: state() after batch k, load_state() later (data/distributed_sampler.h).
//              The engine's checkpoints do not contain it; client_state can.
// Differs      DeepSpeed pins batches unless told otherwise; here `pin_memory` asks for it. RepeatingLoader,
//              which begins again by itself, is the loop above: an epoch without set_epoch() has the order of
//              the last one.
// All else     as make_data_loader() (data/data_loader.h): lifetime, threads, what it throws.
// Source       deepspeed/runtime/dataloader.py.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/data/data_loader.h"
#include "lockstep/data/distributed_sampler.h"

namespace lockstep::compat::deepspeed {

struct DeepSpeedIoOptions {
  std::optional<std::int64_t> batch_size = {};  // default: train_micro_batch_size_per_gpu
  int num_local_io_workers = 2;                 // threads that make batches; 0: the loop itself
  bool pin_memory = false;
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same on every rank
};

template <typename Data> class EngineDataLoader {  // Data: a data set, or a reference to one
 public:
  EngineDataLoader(Data&& dataset, const DistributedSamplerOptions& order, const DataLoaderOptions& options)
      : sampler_(std::make_unique<DistributedSampler>(dataset.size(), order)),
        loader_(make_data_loader(std::forward<Data>(dataset), *sampler_, options)) {}

  void set_epoch(std::int64_t epoch) { sampler_->set_epoch(epoch); }
  auto begin() const { return loader_.begin(); }
  std::default_sentinel_t end() const { return {}; }
  std::int64_t size() const { return loader_.size(); }  // number of batches of an epoch
  DistributedSampler& data_sampler() { return *sampler_; }

 private:
  std::unique_ptr<DistributedSampler> sampler_;  // stays where it is, because the loader refers to it
  DataLoader<Data> loader_;
};

}  // namespace lockstep::compat::deepspeed
