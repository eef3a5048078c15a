#include "lockstep/parallel/pipeline/part_runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/autograd/graph_leaves.h"
#include "lockstep/autograd/weight_gradients.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/model_part.h"
#include "lockstep/parallel/pipeline/deferred_batch_norm.h"
#include "lockstep/parallel/pipeline/pipeline_skip.h"
#include "lockstep/tensor/random_state.h"

namespace lockstep {
namespace {

NamedTensors without_graph(const NamedTensors& values) {
  NamedTensors plain;
  for (const auto& [name, tensor] : values)
    plain.emplace_back(name, tensor.defined() ? tensor.detach() : tensor);
  return plain;
}

std::vector<at::Tensor> requiring_gradients(const NamedTensors& values) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : values)
    if (tensor.defined() && tensor.requires_grad()) tensors.push_back(tensor);
  return tensors;
}

// So that an optimiser does not take the norm of one stage for that of the model.
void mark_leaves(const std::vector<at::Tensor>& roots, const NamedTensors& arrived) {
  for (const at::Tensor& leaf : graph_leaves(roots)) {
    const auto is_it = [&leaf](const auto& entry) { return entry.second.is_same(leaf); };
    if (std::none_of(arrived.begin(), arrived.end(), is_it))
      optim::mark_as_part(leaf, optim::ModelPart::STAGE);
  }
}

// Random numbers as they were before a forward, until the end of its second run.
class RandomStateScope {
 public:
  explicit RandomStateScope(const at::Tensor& state) : before_(get_rng_state()) { set_rng_state(state); }
  ~RandomStateScope() { set_rng_state(before_); }
  RandomStateScope(const RandomStateScope&) = delete;
  RandomStateScope& operator=(const RandomStateScope&) = delete;

 private:
  const at::Tensor before_;
};

}  // namespace

void PartRunner::begin() { micro_batches_.clear(); }

int PartRunner::with_activations() const {
  return static_cast<int>(std::count_if(micro_batches_.begin(), micro_batches_.end(),
                                        [](const auto& entry) { return entry.second.is_whole; }));
}

NamedTensors PartRunner::call(const MicroBatch& batch) const {
  std::vector<at::Tensor> inputs;
  NamedTensors skips;
  for (const auto& [name, tensor] : batch.arrived) {
    if (name.empty())
      inputs.push_back(tensor);
    else
      skips.emplace_back(name, tensor);
  }
  const PipelineSkipScope scope(std::move(skips));
  NamedTensors outputs;
  for (at::Tensor& output : stage_(inputs)) outputs.emplace_back("", std::move(output));
  if (place_.is_last && !scope.left().empty()) {
    throw InvalidArgument(
        lockstep::str("Pipeline: the last stage ends, and nobody popped the skip tensor ",
                      in_quotes(scope.left().front().first),
                      "; call pipeline_pop() in a later stage than the one that stashes it"));
  }
  outputs.insert(outputs.end(), scope.left().begin(), scope.left().end());
  return outputs;
}

at::Tensor PartRunner::loss_of(const MicroBatch& batch, const NamedTensors& outputs) const {
  if (batch.loss.function == nullptr) return {};
  at::Tensor loss = (*batch.loss.function)(tensors_of(outputs), batch.loss.targets);
  if (loss.defined() && loss.numel() == 1) return loss;
  throw InvalidArgument(
      lockstep::str("Pipeline: the loss of a micro-batch is a tensor with one element, not ",
                    loss.defined() ? lockstep::str(loss.sizes()) : std::string("an undefined one")));
}

at::Tensor PartRunner::keep_roots(MicroBatch& batch, const NamedTensors& outputs) const {
  const at::Tensor loss = loss_of(batch, outputs);
  if (loss.defined() && loss.requires_grad()) batch.roots = {loss};
  if (!place_.is_last) batch.roots = requiring_gradients(outputs);
  if (!place_.is_whole && !stage_.module()) mark_leaves(batch.roots, batch.arrived);
  batch.is_whole = true;
  return loss;
}

PartRunner::Result PartRunner::forward(int micro_batch, NamedTensors arrived, PartLoss loss,
                                       ForwardKeeps keeps, bool learns_gradients) {
  MicroBatch batch{.arrived = std::move(arrived), .loss = std::move(loss)};
  if (keeps == ForwardKeeps::INPUTS) batch.random_state = get_rng_state();
  Result result;
  {
    const at::AutoGradMode mode(keeps == ForwardKeeps::ACTIVATIONS ||
                                (keeps == ForwardKeeps::INPUTS && learns_gradients));
    const NamedTensors outputs = call(batch);
    result.specs = specs_of(outputs);
    const at::Tensor loss_tensor = keep_roots(batch, outputs);
    if (loss_tensor.defined()) result.loss = loss_tensor.item<double>();
    result.values = without_graph(outputs);
  }
  if (keeps == ForwardKeeps::INPUTS) {
    batch.roots.clear();
    batch.is_whole = false;
  }
  if (keeps != ForwardKeeps::NOTHING) micro_batches_[micro_batch] = std::move(batch);
  return result;
}

void PartRunner::recompute(int micro_batch) {
  MicroBatch& batch = micro_batches_.at(micro_batch);
  const RandomStateScope random(batch.random_state);
  const DeferredBatchNormPause pause;
  const at::AutoGradMode mode(true);
  keep_roots(batch, call(batch));
}

std::vector<at::Tensor> PartRunner::root_gradients(const MicroBatch& batch,
                                                   const std::vector<at::Tensor>& given) const {
  if (place_.is_last) {
    if (batch.roots.empty()) return {};
    return {at::full_like(batch.roots.front(), batch.loss.weight)};
  }
  if (given.size() == batch.roots.size()) return given;
  throw InvalidArgument(lockstep::str("Pipeline: ", batch.roots.size(),
                                      " outputs require a gradient after the forward was "
                                      "run again, and ",
                                      given.size(), " did the first time; a stage must do the same twice"));
}

std::vector<at::Tensor> PartRunner::backward(int micro_batch, const std::vector<at::Tensor>& gradients) {
  const MicroBatch batch = std::move(micro_batches_.at(micro_batch));
  micro_batches_.erase(micro_batch);
  const std::vector<at::Tensor> starts = root_gradients(batch, gradients);
  add_weight_gradients_in_place(batch.roots);
  if (!batch.roots.empty()) torch::autograd::backward(batch.roots, starts);
  std::vector<at::Tensor> of_inputs;
  for (const at::Tensor& input : requiring_gradients(batch.arrived))
    of_inputs.push_back(input.grad().defined() ? input.grad() : at::zeros_like(input));
  return of_inputs;
}

std::vector<at::Tensor> PartRunner::backward_input(int micro_batch,
                                                   const std::vector<at::Tensor>& gradients) {
  MicroBatch& batch = micro_batches_.at(micro_batch);
  const std::vector<at::Tensor> inputs = requiring_gradients(batch.arrived);
  batch.half.emplace(batch.roots, root_gradients(batch, gradients), inputs);
  batch.roots.clear();
  batch.arrived.clear();
  std::vector<at::Tensor> of_inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& gradient = batch.half->input_gradients()[i];
    of_inputs.push_back(gradient.defined() ? gradient : at::zeros_like(inputs[i]));
  }
  return of_inputs;
}

void PartRunner::join_weights(const std::vector<int>& micro_batches) {
  for (std::size_t i = 1; i < micro_batches.size(); ++i) {
    auto& earlier = micro_batches_.at(micro_batches[i - 1]).half;
    auto& later = micro_batches_.at(micro_batches[i]).half;
    if (earlier && later) later->take_weights_of(*earlier);
  }
}

void PartRunner::backward_weight(int micro_batch) {
  if (auto& half = micro_batches_.at(micro_batch).half) half->accumulate();
  micro_batches_.erase(micro_batch);
}

}  // namespace lockstep
