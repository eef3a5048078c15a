// CommHook: decides what is sent in place of a plain average of a gradient bucket. Most hooks compress.
//
//   ddp.register_comm_hook("fp16_compress");  // by name, with default options
//   const dist::PowerSgdOptions options{.matrix_approximation_rank = 4};
//   ddp.register_comm_hook(std::make_shared<dist::PowerSgdHook>(options));
//   ddp.register_comm_hook("halved", [](const dist::GradBucket& bucket) -> dist::HookStep {      // one's own
//     bucket.buffer().mul_(0.5);
//     return dist::all_reduce(bucket.buffer(), dist::ReduceOp::SUM, bucket.group(), /*async_op=*/true);
//   });
//
// What it does   run() is called once per bucket and averaged backward, in index order on every rank, during
//                backward. It starts communication and returns without waiting, so that backward goes on
//                meanwhile. When the last step is done, the bucket's buffer must hold the result, the same on
//                every rank.
// Several steps  HookStep::then is called when the work is done, and may start more. The second and later
//                steps of all buckets run at the end of backward, in index order. So only the first step of
//                each overlaps with backward.
// Registration   Collective, once, before the first backward. Every rank registers the same hook; their
//                describe() are compared.
// Division       The hook divides. The result is the average over bucket.group().size() ranks, unless the
//                hook documents another result.
// Communication  Only on bucket.group(), only from run() and `then`, with the same calls on every rank. The
//                bytes that these calls send are counted in stats().bytes_sent.
// Threads        any thread on which autograd runs, one call at a time.
// Fails          An exception of a hook leaves backward() with its type and fails the wrapper for good.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

// One parameter's gradient in a bucket: `count` elements from `offset`, in their order in memory.
struct GradBucketPart {
  std::string name;
  at::Tensor parameter;
  std::int64_t offset = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> strides = {};  // of the gradient in the buffer
};

// A bucket whose gradients of this rank are complete. Cheap to copy. A hook may keep it until its last step.
class GradBucket {
 public:
  using Parts = std::vector<GradBucketPart>;
  GradBucket(std::size_t index, bool is_last, at::Tensor buffer, std::shared_ptr<const Parts> parts,
             ProcessGroup group);

  std::size_t index() const { return index_; }  // bucket 0 is communicated first
  bool is_last() const { return is_last_; }
  const at::Tensor& buffer() const { return buffer_; }  // flat; the gaps between gradients are zero
  at::Tensor reals() const;                             // the same memory, with a complex number as two reals
  const Parts& parts() const { return *parts_; }
  std::vector<at::Tensor> gradients() const;  // views of buffer(), each of its parameter's shape
  std::vector<at::Tensor> parameters() const;
  const ProcessGroup& group() const { return group_; }

 private:
  std::size_t index_;
  bool is_last_;
  at::Tensor buffer_;
  std::shared_ptr<const Parts> parts_;
  ProcessGroup group_;
};

// The steps that a hook has started for one bucket.
struct HookStep {
  Work work;                       // what the step waits for; Work() for nothing
  std::function<HookStep()> then;  // the next step; empty: the buffer holds the result
  HookStep() = default;
  HookStep(Work started, std::function<HookStep()> next = {})  // NOLINT(google-explicit-constructor)
      : work(std::move(started)), then(std::move(next)) {}
};

// How far the result of one step may be from the true mean of the ranks' contributions. A contribution is the
// gradient and, with error feedback, what that rank left out in earlier steps. Each bound holds by itself.
struct HookErrorBound {
  static constexpr double NONE = std::numeric_limits<double>::infinity();
  // for any element, as a multiple of the largest magnitude in any rank's contribution
  double of_largest = NONE;
  double of_norm =
      NONE;  // for the L2 norm, as a multiple of the mean of the L2 norms of the ranks' contributions
  // added to these for any element, because of numbers that are too small for a 16-bit type
  double absolute = 0;
};

class CommHook {
 public:
  using State = torch::OrderedDict<std::string, at::Tensor>;
  virtual ~CommHook() = default;

  // Name and settings as text: "powerSGD(matrix_approximation_rank 1, ...)".
  virtual std::string describe() const = 0;
  virtual HookStep run(const GradBucket& bucket) = 0;

  // For gradients of `dtype` whose values and sums fit into it, over `ranks` ranks. No bound by default.
  virtual HookErrorBound error_bound(at::ScalarType dtype, int ranks) const;

  // The state of this rank on which the next step depends, besides the gradients. Each rank saves its own.
  // The tensors are copies. Entries are by parameter name, so that other buckets do not matter.
  // load_state_dict() throws InvalidArgument for a state of another hook.
  virtual State state_dict() const { return State("tensor"); }
  virtual void load_state_dict(const State& state);
};

// Makes a hook of a function.
class FunctionHook : public CommHook {
 public:
  using Function = std::function<HookStep(const GradBucket&)>;
  FunctionHook(std::string name, Function function)
      : name_(std::move(name)), function_(std::move(function)) {}
  std::string describe() const override { return name_; }
  HookStep run(const GradBucket& bucket) override { return function_(bucket); }

 private:
  std::string name_;
  Function function_;
};

// Waits for the steps of all buckets and runs the next step of each, in the order given, until there is none.
void finish_steps(std::vector<HookStep>& steps);

}  // namespace lockstep
