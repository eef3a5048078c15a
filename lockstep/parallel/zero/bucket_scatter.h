// BucketScatter: averages the gradients of a backward bucket by bucket, each rank getting its own parts,
// which it adds to what earlier backwards of the step have left there.
//
//   BucketScatter scatter(parameters, group, plan, share, {.caps = caps}, "SimpleCNN");
//   scatter.start_next();              // bucket 0: takes its gradients away, returns at once
//   scatter.start_next();
//   scatter.finish();                  // this rank's parts of all buckets are there
//   scatter.flat(piece.bucket);        // where `share` says that they lie
//   scatter.forget();                  // the next averages replace them
//
// Memory   the shares; and a ring of two buckets, in which small gradients are packed. A gradient that
//          travels alone (scatter_layout.h) is sent from where autograd made it. But ranks with memory in
//          common would copy it to where the others can read it, so there it is packed, too. At most two
//          buckets are on their way: the third waits for the first.
// Bits     of a bucket are those of reduce_scatter with AVG. Several backwards of a step add averages, where
//          a rank that adds first would average a sum: the two differ by rounding.
// Taken    a gradient that was taken away leaves an undefined .grad; a parameter without one counts as zero.
//          Whatever holds the gradient besides keeps its values.
//
// Collective  start_next() and finish(): every rank calls them in the same order.
// Fails       with the error of the group; it is of no more use then.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/work.h"
#include "lockstep/parallel/zero/scatter_layout.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

struct ScatterOptions {
  BucketCaps caps;
  bool has_common_memory = false;  // of the group's ranks
};

class BucketScatter {
 public:
  static constexpr std::size_t IN_FLIGHT = 2;  // buckets

  // Distinct leaves that require gradients, equal on every rank of the group; plan and share are of their
  // sizes, and of this rank. `model` is the model's name in messages.
  BucketScatter(const NamedTensors& parameters, const ProcessGroup& group, const ShardPlan& plan,
                const GradientShare& share, const ScatterOptions& options, std::string model);
  BucketScatter(const BucketScatter&) = delete;
  BucketScatter& operator=(const BucketScatter&) = delete;
  ~BucketScatter() = default;

  const BucketPlan& plan() const { return travels_.plan; }
  std::vector<std::size_t> bucket_of() const;  // by parameter
  const at::Tensor& flat(std::size_t number) const { return flats_[number]; }
  std::size_t bytes() const;  // of shares and ring

  // Buckets before this one have been started.
  std::size_t started() const { return next_; }
  bool are_all_started() const { return next_ == plan().size(); }
  void start_next();
  // Waits for all buckets that were started, which are all of them.
  void finish();
  void forget() { adds_ = false; }
  // Other buckets, as `order` wants them. Between backwards.
  void follow(std::span<const std::size_t> order) { lay_out(order); }

 private:
  struct Basis {  // of all plans
    std::vector<BucketParameter> sizes;
    ShardPlan shards;
    ScatterOptions options;
  };
  struct Travels {
    BucketPlan plan;
    ShardLayout layout;  // of `plan`
  };
  struct Travelling {
    std::size_t bucket = 0;
    at::Tensor mine;  // this rank's stretch
    Work work;
  };
  void lay_out(std::span<const std::size_t> order);
  bool is_packed(const BucketSpec& bucket) const {
    return basis_.options.has_common_memory || !travels_alone(bucket);
  }
  at::Tensor take_alone(std::size_t parameter) const;
  at::Tensor pack(const BucketSpec& bucket, const at::Tensor& slot) const;
  at::Tensor output_of(std::size_t bucket, const at::Tensor& flat) const;
  at::Tensor place_of(std::size_t parameter) const;
  void absorb_oldest();

  const std::vector<at::Tensor> parameters_;
  const ProcessGroup group_;
  const Basis basis_;
  const std::vector<ShardPiece> pieces_;  // of the share
  const std::string model_;
  std::vector<at::Tensor> flats_;
  Travels travels_;
  std::array<at::Tensor, IN_FLIGHT> ring_;
  std::deque<Travelling> travelling_;
  std::size_t next_ = 0;
  bool adds_ = false;
};

}  // namespace lockstep
