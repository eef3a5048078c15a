// apex.parallel: DistributedDataParallel with Apex's options, and its Reducer, over Lockstep's.
//
//   namespace apex = lockstep::compat::apex;
//   apex::parallel::DistributedDataParallel ddp(model);  // a module, or what amp::initialize gave
//   auto y = ddp(x);
//   apex::parallel::DistributedDataParallel late(model, {.delay_allreduce = true});      // with an option
//
// Options      message_size              a bucket is sent when it has this many elements
//              delay_allreduce           everything in one bucket (per dtype), at the end of backward
//              allreduce_always_fp32     float16 gradients travel and add up as float32
//              gradient_average          divide by the number of ranks
//              gradient_predivide_factor divide by it before the sum, so that float16 does not overflow, and
//              by
//                                        the rest after. As in Apex, the division before the sum takes place
//                                        without gradient_average, too
//              The other options of Apex concern streams and communicators of GPUs.
// Other facts  parallel/ddp/distributed_data_parallel.h says what is collective and what fails. Buckets are
//              Lockstep's: in the order of the parameters, not as they arrived in the first backward.
// Source       NVIDIA/apex before cb65b8ed (2025-05): apex/parallel/distributed.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/job/job.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"

namespace lockstep::compat::apex::parallel {

struct DistributedDataParallelOptions {
  double message_size = 10000000;
  bool delay_allreduce = false;
  bool allreduce_always_fp32 = false;
  bool gradient_average = true;
  double gradient_predivide_factor = 1.0;
  std::optional<ProcessGroup> process_group = {};  // default: world()
};

// The same as options of Lockstep's wrapper.
lockstep::DistributedDataParallelOptions options_of(const DistributedDataParallelOptions& options,
                                                    const NamedTensors& parameters);
// Gives every rank rank 0's values.
void broadcast_all(const std::vector<at::Tensor>& tensors, const ProcessGroup& group);
// Null if DDP's own average does it.
std::shared_ptr<CommHook> hook_of(const DistributedDataParallelOptions& options);

template <typename Model> class DistributedDataParallel {
 public:
  explicit DistributedDataParallel(Model model, const DistributedDataParallelOptions& options = {})
      : model_(std::move(model)),
        ddp_(model_->named_parameters().pairs(), model_->named_buffers().pairs(),
             options_of(options, model_->named_parameters().pairs())) {
    if (auto hook = hook_of(options)) ddp_.register_comm_hook(std::move(hook));
    if constexpr (requires { model_.masters(); }) broadcast_all(model_.masters(), ddp_.process_group());
  }

  template <typename... Arguments> auto forward(const Arguments&... arguments) {
    ddp_.train(model_->is_training());
    return ddp_.forward([&] {
      if constexpr (requires { model_.forward(arguments...); }) {
        return model_.forward(arguments...);
      } else {
        return model_->forward(arguments...);
      }
    });
  }
  template <typename... Arguments> auto operator()(const Arguments&... arguments) {
    return forward(arguments...);
  }

  const Model& module() const { return model_; }
  std::vector<at::Tensor> parameters() const { return ddp_.parameters(); }
  void train(bool on = true) { model_->train(on); }
  void eval() { train(false); }
  DistributedDataParallelStats stats() const { return ddp_.stats(); }

 private:
  Model model_;
  lockstep::DistributedDataParallel<void> ddp_;
};

// Averages gradients on request: Reducer reducer(net->parameters()); ...backward(); reducer.reduce();
class Reducer {
 public:
  // Collective: every rank gets rank 0's values.
  explicit Reducer(std::vector<at::Tensor> parameters, const ProcessGroup& group = world());
  // Collective. Every rank must have a gradient for the same parameters.
  void reduce() const;

 private:
  const std::vector<at::Tensor> parameters_;
  const ProcessGroup group_;
};

}  // namespace lockstep::compat::apex::parallel
