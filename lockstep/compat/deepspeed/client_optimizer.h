// ClientOptimizer: an optimiser of the program's own for DeepSpeed's engine, in place of the configuration's.
// The engine makes it, because each rank steps shards of the parameters that exist when the model is wrapped.
//
//   namespace deepspeed = lockstep::compat::deepspeed;
//   auto [engine, optimizer, lr_scheduler] = deepspeed::initialize(
//       net, deepspeed::read_config("ds_config.json"),
//       {.optimizer = deepspeed::client_optimizer<dist::optim::LARS>(dist::optim::LARSOptions(0.1))});
//
// Parameter groups, with options of their own; the options at the end are of all that no group names:
//
//   namespace deepspeed = lockstep::compat::deepspeed;
//   const auto adamw = deepspeed::client_optimizer<dist::optim::AdamW>(
//       {{{fc->bias}, dist::optim::AdamWOptions(3e-4).weight_decay(0)}}, dist::optim::AdamWOptions(3e-4));
//
// Which        those of ShardedDataParallel::optimizer(): Lockstep's, and any torch::optim::Optimizer that
//              has a constructor of parameter groups and options and steps each element by itself. To save a
//              checkpoint at stages 1 to 3, and to offload to files, it must be one of Lockstep's.
// Groups       a parameter that requires no gradient is left out. Where the groups name all others, there is
//              no group besides.
// Fails        InvalidArgument, as initialize() makes it: a tensor that is no parameter of the model, or is
//              there twice.
// Source       deepspeed/__init__.py: `optimizer` of initialize(), as a callable.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/compat/deepspeed/replica_masters.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"

namespace lockstep::compat::deepspeed {

class ClientOptimizer {
 public:
  using Made = std::unique_ptr<torch::optim::Optimizer>;

  ClientOptimizer() = default;  // the configuration's
  ClientOptimizer(std::function<Made(const ReplicaMasters&)> over_replicas,
                  std::function<Made(ShardedDataParallelBase&)> over_shards)
      : over_replicas_(std::move(over_replicas)), over_shards_(std::move(over_shards)) {}

  bool is_given() const { return over_replicas_ != nullptr; }
  Made over(const ReplicaMasters& masters) const { return over_replicas_(masters); }
  Made over(ShardedDataParallelBase& model) const { return over_shards_(model); }

 private:
  std::function<Made(const ReplicaMasters&)> over_replicas_;  // stage 0
  std::function<Made(ShardedDataParallelBase&)> over_shards_;
};

// From here to client_optimizer(): what it is made of. Programs need none of it.

// The tensors that require a gradient, by group.
std::vector<std::vector<at::Tensor>> trained_in(const std::vector<std::vector<at::Tensor>>& groups);
// Whether each of the parameters that require a gradient is in one of the groups, and nothing else is.
bool are_all_in(const std::vector<std::vector<at::Tensor>>& groups,
                const std::vector<at::Tensor>& parameters);

template <typename Options> struct ClientGroups {
  std::vector<std::vector<at::Tensor>> parameters;  // of all groups but the last, which has what is left
  std::vector<Options> options;                     // of all groups
};

template <typename Options>
ClientGroups<Options> client_groups(const std::vector<ShardedGroup<Options>>& groups, const Options& defaults,
                                    const std::vector<at::Tensor>& parameters) {
  ClientGroups<Options> own;
  for (const ShardedGroup<Options>& group : groups) {
    own.parameters.push_back(group.parameters);
    own.options.push_back(group.options);
  }
  own.parameters = trained_in(own.parameters);
  if (!own.parameters.empty() && are_all_in(own.parameters, parameters)) {
    own.parameters.pop_back();
  } else {
    own.options.push_back(defaults);
  }
  return own;
}

template <std::derived_from<torch::optim::Optimizer> Base, typename Options>
ClientOptimizer::Made make_over(const ReplicaMasters& masters, const ClientGroups<Options>& groups) {
  const auto shards = masters.grouped(groups.parameters);
  std::vector<torch::optim::OptimizerParamGroup> unnamed;
  if constexpr (std::derived_from<Base, optim::Optimizer>) {
    auto made = std::make_unique<Base>(unnamed, groups.options.back());
    for (std::size_t g = 0; g < shards.size(); ++g) made->add_param_group(shards[g], groups.options[g]);
    return made;
  } else {
    for (std::size_t g = 0; g < shards.size(); ++g)
      unnamed.emplace_back(zero::tensors_of(shards[g]), std::make_unique<Options>(groups.options[g]));
    return std::make_unique<Base>(unnamed, groups.options.back());
  }
}

template <std::derived_from<torch::optim::Optimizer> Base, typename Options>
ClientOptimizer::Made make_over(ShardedDataParallelBase& model, const ClientGroups<Options>& groups) {
  std::vector<ShardedGroup<Options>> named;
  for (std::size_t g = 0; g < groups.parameters.size(); ++g)
    named.push_back({groups.parameters[g], groups.options[g]});
  return ClientOptimizer::Made(
      new ShardedOptimizer<Base>(model.optimizer<Base, Options>(named, groups.options.back())));
}

template <std::derived_from<torch::optim::Optimizer> Base, typename Options>
ClientOptimizer client_optimizer(const std::vector<ShardedGroup<Options>>& groups, const Options& defaults) {
  return {[groups, defaults](const ReplicaMasters& masters) {
            return make_over<Base>(masters, client_groups(groups, defaults, masters.parameters()));
          },
          [groups, defaults](ShardedDataParallelBase& model) {
            return make_over<Base>(model, client_groups(groups, defaults, model.parameters()));
          }};
}
template <std::derived_from<torch::optim::Optimizer> Base, typename Options>
ClientOptimizer client_optimizer(const Options& options) {
  return client_optimizer<Base, Options>(std::vector<ShardedGroup<Options>>(), options);
}

}  // namespace lockstep::compat::deepspeed
