// DistributedSampler tells each rank which items of a data set are its own in this epoch, and in what order.
//
//   DistributedSampler sampler(train.size());               // this rank of the job; shuffled, seed 0
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     sampler.set_epoch(epoch);  // another order; without it every epoch is the same
//     for (const auto index : sampler.indices()) use(index);     // or give the sampler to make_data_loader()
//   }
//
// The order is that of Python's torch.utils.data.DistributedSampler, index for index: the permutation of a
// generator seeded with seed + epoch, the same on every rank; its head repeated at its end until the number
// of items divides evenly (or its tail cut, with drop_last); then rank r takes every num_replicas-th item
// from the r-th on. All ranks get equally many.
//
// Evaluation  covers a data set exactly with `pad` off: nothing is repeated and nothing left out, so each
//             item is on one rank, and of N items a rank gets N / num_replicas or one more, or none.
//
//               DistributedSampler sampler(test.size(), {.shuffle = false, .pad = false});
//               auto loader = make_data_loader(test, sampler, {.batch_size = 250});
//               Metrics totals({.sums = {"correct"}});               // train/metrics.h
//               // A rank without items has no batches.
//               for (auto& batch : loader) totals.add_sum("correct", count_correct(batch));
//               const double correct = totals.across_ranks().at("correct");
//
//             Ranks may get unequal numbers of batches, so such a loop has no collective in it. A forward
//             without gradients has none. The outputs themselves are put together by gather_for_metrics()
//             (train/gather_for_metrics.h). Virtual ranks do not count: each process gets its share. Such a
//             sampler is no part of a checkpoint, because ranks are at different places.
// Copies      are the same sampler: what one is told, all know. So a loader of libtorch, which keeps a copy,
//             sees set_epoch():
//
//               auto loader = torch::data::make_data_loader(std::move(dataset), sampler,
//                                                           torch::data::DataLoaderOptions(64));
//               for (int epoch = 0; epoch < 10; ++epoch) {
//                 sampler.set_epoch(epoch);
//                 for (auto& batch : *loader) ...
//               }
//
// Forgotten   set_epoch(): the second pass in a row over one epoch in the same shuffled order is said once,
//             through the log sink. Seen are passes of loaders, ours and libtorch's, of which a batch was
//             taken; a loop over indices() is not.
// Resuming    state() after batch k, load_state() in a new process and set_epoch() with the state's epoch:
//             the next pass starts with batch k + 1. What counts as consumed is what our loader has handed
//             out, not what it has prefetched. libtorch's loader does not tell: with it all that it has asked
//             for counts, max_jobs() batches more, so save at the end of an epoch.
// Virtual     ranks (job/virtual_ranks.h): a sampler that is given no rank serves all virtual ranks of this
// ranks       process, each its own items in its own order; one that is made within a turn serves that
// virtual
//             rank alone. Loaders take batches from them in turn: the first batch of each, then the second of
//             each.
// Threads     one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep {

struct DistributedSamplerOptions {
  std::optional<int> num_replicas = {};  // default: virtual_world_size(), which needs init_process_group()
  std::optional<int> rank = {};          // default: get_rank(), or this process's virtual ranks
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same on every rank
  bool drop_last = false;
  bool pad = true;  // false: ranks may get one item less than others; not with drop_last
};

// Where a sampler stands, and of what it is the sampler. Plain numbers, to be saved with a checkpoint.
struct DistributedSamplerState {
  std::int64_t epoch = 0;
  // How many of this rank's indices have been consumed; with `pad` the same on every rank.
  std::int64_t position = 0;

  std::int64_t dataset_size = 0;
  int num_replicas = 1;
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool drop_last = false;
  bool pad = true;

  bool operator==(const DistributedSamplerState&) const = default;
};

class DistributedSampler {
 public:
  // Throws InvalidArgument for a negative size, num_replicas below 1, a rank outside of it, and drop_last
  // without pad.
  explicit DistributedSampler(std::int64_t dataset_size, const DistributedSamplerOptions& options = {});

  // Chooses the order. Another epoch than the present one starts at its beginning. Throws InvalidArgument
  // when negative.
  void set_epoch(std::int64_t epoch);
  std::int64_t epoch() const { return shared_->state.epoch; }

  // How many indices each rank gets in an epoch; without `pad` this rank.
  std::int64_t size() const;

  // All of this rank's indices of this epoch, consumed or not. With several virtual ranks those of one after
  // the other, size() of each.
  std::vector<std::int64_t> indices() const;
  // For each of indices() its place in the epoch's order of all ranks. From dataset_size on it is padding.
  std::vector<std::int64_t> positions() const;
  // How many ranks this sampler serves.
  std::size_t replicas() const { return replicas_; }

  const DistributedSamplerState& state() const { return shared_->state; }

  // Throws InvalidArgument, naming both values, when `state` belongs to another data set, number of replicas,
  // seed, shuffle, drop_last or pad, because the order would be another one; or when its position lies
  // outside of the epoch.
  void load_state(const DistributedSamplerState& state);

  // For loaders. A pass over indices() starts at the number that start_pass() returns: 0, but once after
  // load_state() the saved position. advance() counts what has been handed to the program.
  std::int64_t start_pass();
  void advance(std::int64_t count);

  // For torch::data::make_data_loader(), which calls these at the beginning of an epoch and for each batch;
  // nothing at the end. reset() throws InvalidArgument for another size than the data set's.
  using BatchRequestType = std::vector<std::size_t>;
  void reset(std::optional<std::size_t> new_size = std::nullopt);
  std::optional<BatchRequestType> next(std::size_t batch_size);

 private:
  struct Shared {  // by all copies
    DistributedSamplerState state;
    bool resumes = false;       // load_state() was called and no pass has started since
    bool epoch_was_set = true;  // since the last pass began
    std::uint64_t graphs = 0;   // recorded by autograd on this thread when the last pass began
    bool has_passed = false;
    bool has_said = false;            // that set_epoch() was forgotten
    std::vector<std::int64_t> order;  // of the pass of libtorch's loader
    std::size_t turn = 0;             // of the replica that gets its next batch
  };
  void note_pass() const;

  int rank_;                  // or the first of several virtual ranks
  std::size_t replicas_ = 1;  // from that one on
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace lockstep
