// PartRunner: runs one part of a pipeline's model for the micro-batches of a step, and keeps for each of them
// what its backward needs. It knows no other rank. Used by pipeline_step.h.
//
//   FORWARD ───────────────► whole ──BACKWARD──────────► gone
//      │                       ▲  └──BACKWARD_INPUT──► half ──BACKWARD_WEIGHT──► gone
//      └─(recomputed later)─► inputs alone ──RECOMPUTE──┘
//
// Recompute   The forward runs without autograd, and keeps the inputs and the state of the random numbers.
//             The second forward begins with that state, so dropout draws the same numbers. Layers with state
//             of their own (BatchNorm) run twice; DeferredBatchNorm does not count the second.
// Gradients   A gradient of an output that does not arrive is not used. The gradient of an input that the
//             part does not use is zeros.
// Weights     of linear layers get their gradients in place (autograd/weight_gradients.h).
// Marks       the leaves of the graph of a function without a module as parameters of a stage
//             (optim/model_part.h).
// Throws      what the function and its backward throw; InvalidArgument for a loss of several elements, for
//             skip tensors that the last part leaves, and for a second forward that gives other outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <vector>

#include "lockstep/parallel/pipeline/pipeline_stage.h"
#include "lockstep/parallel/pipeline/split_backward.h"
#include "lockstep/parallel/pipeline/value_specs.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

enum class ForwardKeeps { NOTHING, INPUTS, ACTIVATIONS };

// What the last part does behind its outputs.
struct PartLoss {
  const PipelineLoss* function = nullptr;  // null: no loss is computed
  std::vector<at::Tensor> targets;
  double weight = 1;  // of this micro-batch in the batch's loss
};

class PartRunner {
 public:
  struct Place {
    bool is_last = false;
    bool is_whole = false;  // no other rank has a part of the model
  };
  PartRunner(PipelineStage stage, Place place) : stage_(std::move(stage)), place_(place) {}

  // Forgets the micro-batches of the step before.
  void begin();

  struct Result {
    NamedTensors values;  // without graph
    ValueSpecs specs;     // requires_grad is known unless the forward kept the inputs alone
    std::optional<double> loss;
  };
  // With `learns_gradients`, a forward that keeps the inputs alone runs with autograd all the same, so that
  // its specs are complete.
  Result forward(int micro_batch, NamedTensors arrived, PartLoss loss, ForwardKeeps keeps,
                 bool learns_gradients = false);
  void recompute(int micro_batch);
  // `gradients`: of the values that require one; of the last part none. Returns those of the inputs that
  // require one.
  std::vector<at::Tensor> backward(int micro_batch, const std::vector<at::Tensor>& gradients);
  std::vector<at::Tensor> backward_input(int micro_batch, const std::vector<at::Tensor>& gradients);
  void backward_weight(int micro_batch);
  // Before the backward_weight() of these, which come in this order.
  void join_weights(const std::vector<int>& micro_batches);

  // Micro-batches between their forward and the end of their backward, and those with whole activations.
  int in_flight() const { return static_cast<int>(micro_batches_.size()); }
  int with_activations() const;
  const PipelineStage& stage() const { return stage_; }

 private:
  struct MicroBatch {
    NamedTensors arrived;
    PartLoss loss;
    at::Tensor random_state;            // before the forward, if it runs again
    std::vector<at::Tensor> roots;      // of the backward: the loss, or the outputs that require a gradient
    std::optional<SplitBackward> half;  // after BACKWARD_INPUT
    bool is_whole = false;
  };

  NamedTensors call(const MicroBatch& batch) const;
  // The outputs, and the loss as a second entry if there is one; sets the roots.
  at::Tensor keep_roots(MicroBatch& batch, const NamedTensors& outputs) const;
  std::vector<at::Tensor> root_gradients(const MicroBatch& batch, const std::vector<at::Tensor>& given) const;
  at::Tensor loss_of(const MicroBatch& batch, const NamedTensors& outputs) const;

  PipelineStage stage_;
  Place place_;
  std::map<int, MicroBatch> micro_batches_;
};

}  // namespace lockstep
