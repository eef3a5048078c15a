// DistributedSampler tells each rank which items of a data set are its own in this epoch, and in what order.
//
//   DistributedSampler sampler(train.size());               // this rank of the job; shuffled, seed 0
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     sampler.set_epoch(epoch);  // another order; without it every epoch is the same
//     for (const auto index : sampler.indices()) use(index);     // or give the sampler to make_data_loader()
//   }
//
// The order is that of Python's torch.utils.data.DistributedSampler, index for index. A generator seeded with
// seed + epoch makes a permutation, the same on every rank. Its head is repeated at its end until the number
// of items divides evenly (or its tail is cut, with drop_last). Then rank r takes every num_replicas-th item
// from the r-th on. All ranks get the same number.
//
// Evaluation  covers a data set exactly with `pad` off. No item is repeated or left out: each item is on one
//             rank. Of N items a rank gets N / num_replicas, or one more.
//
//               DistributedSampler sampler(test.size(), {.shuffle = false, .pad = false});
//               auto loader = make_data_loader(test, sampler, {.batch_size = 250});
//               Metrics totals({.sums = {"correct"}});               // train/metrics.h
//               // A rank without items has no batches.
//               for (auto& batch : loader) totals.add_sum("correct", count_correct(batch));
//               const double correct = totals.across_ranks().at("correct");
//
//             Ranks may get different numbers of batches, so such a loop must not contain a collective. A
//             forward without gradients has none. gather_for_metrics() puts the outputs together
//             (train/gather_for_metrics.h). Virtual ranks do not count: each process gets its share. Do not
//             add such a sampler to a checkpoint, because ranks are at different places.
// Copies      of a sampler share its state. So a loader of libtorch, which keeps a copy, sees set_epoch():
//
//               auto loader = torch::data::make_data_loader(std::move(dataset), sampler,
//                                                           torch::data::DataLoaderOptions(64));
//               for (int epoch = 0; epoch < 10; ++epoch) {
//                 sampler.set_epoch(epoch);
//                 for (auto& batch : *loader) ...
//               }
//
// Forgotten   set_epoch(): the log sink gets one warning when two passes in a row run over one epoch in the
//             same shuffled order. The passes of loaders count, Lockstep's and libtorch's, if a batch was
//             taken. A loop over indices() does not count.
// Resuming    Call state() after batch k. In a new process call load_state(), and set_epoch() with the
//             state's epoch. The next pass starts with batch k + 1. Consumed are the batches that Lockstep's
//             loader has handed out, not those that it has prefetched. With libtorch's loader all batches
//             that it has asked for count, max_jobs() more. So save at the end of an epoch there.
// Virtual     ranks (job/virtual_ranks.h): a sampler without a rank serves all virtual ranks of this process,
//             each with its own items in its own order. A sampler made within a turn serves that virtual rank
//             alone. Loaders take batches in turn: the first batch of each virtual rank, then the second of
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

// The position of a sampler, and the facts that decide its order. Plain numbers, to be saved with a
// checkpoint.
struct DistributedSamplerState {
  std::int64_t epoch = 0;
  // Number of this rank's indices that have been consumed; with `pad` the same on every rank.
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
  // Throws InvalidArgument for a negative size, num_replicas below 1, a rank out of range, and drop_last
  // without pad.
  explicit DistributedSampler(std::int64_t dataset_size, const DistributedSamplerOptions& options = {});

  // Chooses the order. Another epoch than the present one starts at its beginning. Throws InvalidArgument if
  // it is negative.
  void set_epoch(std::int64_t epoch);
  std::int64_t epoch() const { return shared_->state.epoch; }

  // Number of indices that each rank gets in an epoch; without `pad`, that this rank gets.
  std::int64_t size() const;

  // All of this rank's indices of this epoch, consumed or not. With several virtual ranks, those of one after
  // the other, size() of each.
  std::vector<std::int64_t> indices() const;
  // For each of indices() its place in the epoch's order of all ranks. Places from dataset_size on are
  // padding.
  std::vector<std::int64_t> positions() const;
  // Number of ranks that this sampler serves.
  std::size_t replicas() const { return replicas_; }

  const DistributedSamplerState& state() const { return shared_->state; }

  // Throws InvalidArgument that names both values if `state` belongs to another data set, number of replicas,
  // seed, shuffle, drop_last or pad, because its order would differ. Also throws if its position lies outside
  // of the epoch.
  void load_state(const DistributedSamplerState& state);

  // Called by loaders. A pass over indices() starts at the number that start_pass() returns. That is 0, or
  // once after load_state() the saved position. advance() counts the indices handed to the program.
  std::int64_t start_pass();
  void advance(std::int64_t count);

  // Called by torch::data::make_data_loader() at the beginning of an epoch and for each batch. Returns none
  // at the end. reset() throws InvalidArgument for another size than the data set's.
  using BatchRequestType = std::vector<std::size_t>;
  void reset(std::optional<std::size_t> new_size = std::nullopt);
  std::optional<BatchRequestType> next(std::size_t batch_size);

 private:
  struct Shared {  // state shared by all copies
    DistributedSamplerState state;
    bool resumes = false;       // load_state() was called and no pass has started since
    bool epoch_was_set = true;  // since the last pass began
    // number of graphs that autograd had recorded on this thread when the last pass began
    std::uint64_t graphs = 0;
    bool has_passed = false;
    bool has_said = false;            // the warning that set_epoch() was forgotten has been logged
    std::vector<std::int64_t> order;  // the order of libtorch's loader in this pass
    std::size_t turn = 0;             // the replica that gets its next batch
  };
  void note_pass() const;

  int rank_;                  // or the first of several virtual ranks
  std::size_t replicas_ = 1;  // number of ranks from that one on
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace lockstep
