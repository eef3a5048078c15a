// Metrics: several means and sums by name, over all ranks in one call.
//
//   dist::Metrics metrics({.means = {"loss"}, .sums = {"correct", "images"}});
//   for (auto& batch : loader) {
//     const auto count = static_cast<double>(batch.target.size(0));
//     const at::Tensor output = ddp->forward(batch.data);
//     metrics.add_mean("loss", cross_entropy(output, batch.target), count);    // each sample counts alike
//     metrics.add_sum("correct", output.argmax(1).eq(batch.target).sum());
//     metrics.add_sum("images", count);
//   }
//   const std::map<std::string, double> totals = metrics.across_ranks();       // the same on every rank
//   std::printf("loss %.4f, accuracy %.4f\n", totals.at("loss"), totals.at("correct") / totals.at("images"));
//   metrics.reset();
//
// In one line, for values that a program already has:
//
//   const auto means = dist::Metrics().add_mean("loss", 0.25).add_sum("tokens", 4096).across_ranks();
//
// Names        of means and sums must be the same on all ranks, in any order. Names given to the constructor
//              exist from the beginning, even on a rank that adds nothing. Others begin with the first add.
// Values       numbers, or tensors of one element, which are detached. They are added up in float64.
// Collective   across_ranks(): every rank of the group. One all_reduce of 512 bytes, which blocks; for more
//              than 28 names a second one. For one metric alone see train/mean.h.
// Fails        InvalidArgument: an empty name, one name for a mean and a sum, a negative weight, a process
//              outside of the group. Mismatch, on all ranks: names that differ, one of which is named; the
//              group stays usable.
// Threads      one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"

namespace lockstep {

struct MetricNames {
  std::vector<std::string> means = {};
  std::vector<std::string> sums = {};
};

class Metrics {
 public:
  Metrics() = default;
  explicit Metrics(const MetricNames& names);

  Metrics& add_mean(const std::string& name, double value, double weight = 1);
  Metrics& add_mean(const std::string& name, const at::Tensor& value, double weight = 1) {
    return add_mean(name, value.item<double>(), weight);
  }
  Metrics& add_sum(const std::string& name, double value);
  Metrics& add_sum(const std::string& name, const at::Tensor& value) {
    return add_sum(name, value.item<double>());
  }

  // By name. A mean is NaN if no rank has added any weight, and a sum is then 0. The first function is for
  // this rank alone.
  std::map<std::string, double> of_this_rank() const;
  std::map<std::string, double> across_ranks(const ProcessGroup& group = world()) const;

  // Sets all values to zero. Keeps the names.
  void reset();

 private:
  struct Entry {
    bool is_mean = false;
    double sum = 0;
    double weight = 0;
    double value() const;
  };
  Entry& entry(const std::string& name, bool is_mean);
  std::vector<std::string> titles() const;

  std::map<std::string, Entry> entries_;
};

}  // namespace lockstep
