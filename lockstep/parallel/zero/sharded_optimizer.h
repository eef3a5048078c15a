// ShardedOptimizer: an optimiser of which each rank steps its parts of a model. Made by
// ShardedDataParallel::optimizer(), which has the manual.
//
//   auto optimizer = model.optimizer<dist::optim::AdamW>(dist::optim::AdamWOptions(3e-4));
//   loss.backward();
//   optimizer.step();
//
// It is an AdamW whose parameters are this rank's shards. What takes a torch::optim::Optimizer (schedulers,
// GradScaler) takes it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/zero/sharded_state.h"
#include "lockstep/parallel/zero/sharded_step.h"
#include "lockstep/tensor/pending_gradients.h"

namespace lockstep {

// Parameters, or all of those that no other group names, and their options.
template <typename Options> struct ShardedGroup {
  std::vector<at::Tensor> parameters;
  Options options;
};

namespace zero {

// By group: the shards of its parameters.
using GroupedShards = std::vector<std::vector<optim::ParameterShard>>;

// What an optimiser of several ranks does around a step.
void before_step(ShardedStep& step, bool by_parts);
void guard_step(ShardedStep& step, const std::function<void()>& body);
void after_step(ShardedStep& step);
std::vector<at::Tensor> tensors_of(const std::vector<optim::ParameterShard>& shards);
[[noreturn]] void refuse_to_save();
[[noreturn]] void refuse_offload();
// Those of the shards that are masters of 16-bit parameters, by the parameters' names.
NamedTensors masters_of(const ShardedStep& step, const std::vector<optim::ParameterShard>& shards);
// Of the parameters, by their shards.
std::unordered_map<const void*, std::size_t> numbers_of(const ShardedStep& step);

}  // namespace zero

template <std::derived_from<torch::optim::Optimizer> Base>
class ShardedOptimizer : public Base, public PendingGradients, public HasCheckpointItem {
 public:
  template <typename Options>
  ShardedOptimizer(std::shared_ptr<ShardedStep> step, const ProcessGroup& group,
                   const zero::GroupedShards& shards, const std::vector<Options>& options,
                   const Options& defaults)
      : Base(groups_of(shards, options), defaults), step_(std::move(step)) {
    const std::shared_ptr<FileMemory>& file = step_->parameters().state_memory().holder();
    if constexpr (!std::derived_from<Base, optim::Optimizer>) {
      if (file != nullptr) zero::refuse_offload();
    } else {
      if (file != nullptr) Base::keep_state_in(file);
      for (std::size_t g = 0; g < shards.size(); ++g) {
        Base::add_param_group(shards[g], options[g]);
        shards_.insert(shards_.end(), shards[g].begin(), shards[g].end());
      }
      if (group.size() > 1) Base::reduce_norms(NormReducer(group));
      if (Base::takes_gradient_parts())
        Base::look_up_gradients([held = step_, numbers = zero::numbers_of(*step_)](const at::Tensor& shard) {
          const auto found = numbers.find(shard.unsafeGetTensorImpl());
          return found == numbers.end() ? nullptr : held->parts(found->second);
        });
    }
  }

  // Collective. Returns when all ranks have stepped their parts, so that every parameter is new. The
  // gradients are gone then.
  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) {
      const at::AutoGradMode with_grad(true);
      loss = closure();
    }
    bool by_parts = false;
    if constexpr (std::derived_from<Base, optim::Optimizer>) by_parts = Base::takes_gradient_parts();
    zero::before_step(*step_, by_parts);
    zero::guard_step(*step_, [&] { Base::step(); });
    zero::after_step(*step_);
    return loss;
  }
  // Drops the gradients of the model: what backward passes have added up, and averages.
  void zero_grad(bool /*set_to_none*/ = true) { step_->drop(); }
  // For GradScaler: makes this rank's parts of the gradients averages, in the .grad of its shards.
  // Collective.
  void make_gradients() override { step_->average(); }
  // For CheckpointState::add() (sharded_state.h). Throws InvalidArgument for an optimiser of libtorch, whose
  // state has no names.
  std::shared_ptr<CheckpointItem> checkpoint_item() override {
    if constexpr (std::derived_from<Base, optim::Optimizer>)
      return zero::sharded_state_item(*this, shards_, zero::masters_of(*step_, shards_));
    zero::refuse_to_save();
  }

 private:
  template <typename Options>
  static std::vector<torch::optim::OptimizerParamGroup> groups_of(const zero::GroupedShards& shards,
                                                                  const std::vector<Options>& options) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    if constexpr (std::derived_from<Base, optim::Optimizer>) return groups;  // added with their names
    for (std::size_t g = 0; g < shards.size(); ++g)
      groups.emplace_back(zero::tensors_of(shards[g]), std::make_unique<Options>(options[g]));
    return groups;
  }

  const std::shared_ptr<ShardedStep> step_;
  std::vector<optim::ParameterShard> shards_;  // with names
};

}  // namespace lockstep
