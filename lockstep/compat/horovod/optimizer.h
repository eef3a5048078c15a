// DistributedOptimizer: any optimizer of libtorch, whose gradients are reduced over all ranks while backward
// still runs.
//
//   hvd::DistributedOptimizer optimizer(adam, net->named_parameters().pairs());
//   optimizer.zero_grad();
//   loss.backward();
//   optimizer.step();                                        // waits for the gradients, then adam.step()
//
// To clip in between:
//
//   loss.backward();
//   optimizer.synchronize();
//   torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
//   const auto skipped = optimizer.skip_synchronize();       // while it lives, step() does not reduce
//   optimizer.step();
//
// Hooks        a gradient's reduction starts, by its name, when autograd has accumulated it for the k-th of
//              backward_passes_per_step times. The gradients of these passes are added, not averaged.
// Absent       a parameter that got no gradient on this rank takes part with zeros, so ranks may take
//              different branches.
// Groups       a number of equal parts of the parameters, or lists of their names: each part is reduced
//              together. The predivide factor counts there too.
// Adasum       each rank makes its own step, and the changes of the parameters are combined.
// Sparse       gradients are gathered; sparse_as_dense reduces them as dense ones.
// Throws       InvalidArgument: names that are not unique or miss a parameter, a predivide factor without
//              Average, too many backward passes before step(), zero_grad() while reductions are under way.
//              Otherwise as allreduce.
// Lifetime     the wrapped optimizer outlives it. Threads: as of an optimizer, one.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/compat/horovod/operations.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::compat::horovod {

struct DistributedOptimizerOptions {
  Compression compression = Compression::none;
  int backward_passes_per_step = 1;
  ReduceOp op = ReduceOp::AVERAGE;
  double gradient_predivide_factor = 1.0;  // 1/f before the sum, f/size after it
  int num_groups = 0;
  std::vector<std::vector<std::string>> groups = {};  // names; each in one list at most
  bool sparse_as_dense = false;
  ProcessSet process_set = {};
};

class GradientReduction;

class DistributedOptimizer {
 public:
  DistributedOptimizer(torch::optim::Optimizer& optimizer, const NamedTensors& named_parameters,
                       const DistributedOptimizerOptions& options = {});
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  void step();
  void zero_grad(bool set_to_none = true);
  // Waits for all gradients.
  void synchronize();
  // Until the guard goes, step() does not reduce.
  [[nodiscard]] std::shared_ptr<void> skip_synchronize();
  void set_backward_passes_per_step(int passes);

  torch::optim::Optimizer& optimizer() { return optimizer_; }

 private:
  void step_and_combine_changes();

  torch::optim::Optimizer& optimizer_;
  const DistributedOptimizerOptions options_;
  const NamedTensors parameters_;
  std::unique_ptr<GradientReduction> reduction_;  // null for Adasum
  bool skips_ = false;
  bool is_synchronized_ = false;
};

}  // namespace lockstep::compat::horovod
