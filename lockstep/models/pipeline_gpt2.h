// PipelineGPT2: this rank's part of a GPT-2 that lies on a whole mesh: its layers in stages of a pipeline,
// each layer shared out over a tensor-parallel group, each sequence over a context-parallel group. With
// ShardedDataParallel around it, the copies of a stage share out its optimiser: 3D parallelism
// (docs/3d_parallel.md).
//
//   const dist::ModelParallel mesh = dist::init_model_parallel({.tensor = 2, .pipeline = 2});     // 8 ranks
//   tensor_parallel::model_parallel_manual_seed(1, mesh.get_model_parallel_group());
//   models::PipelineGPT2 net(models::GPT2Config::small(), mesh);
//   dist::ShardedDataParallel model(net, {.process_group = mesh.get_data_parallel_group(true)});
//   auto optimizer = model.optimizer<dist::optim::AdamW>(dist::optim::AdamWOptions(3e-4));
//   dist::Pipeline pipeline(models::stages_of(model, net->chunks()), net->loss_function(),
//                           {.micro_batches = 8}, mesh.get_pipeline_model_parallel_group());
//   pipeline.tie("wte", net->tied_weight());
//   dist::GradientNorm norm(*net, mesh);
//   double loss = pipeline.step(batch.data, batch.target).loss;   // the same batch on all ranks of a copy
//   norm.clip_grad_norm_(model, 1.0);
//   optimizer.step();
//
// Same        names, shapes (of the whole parameters), first values and formulas as models::GPT2, up to the
//             rounding of sums in another order. Checkpoints of any mesh, of TensorParallelGPT2 and of GPT2
//             fit each other, by ModelState (parallel/tensor_parallel/model_state.h).
// Has         the parameters of its stages alone, under the numbers that their layers have in the whole
//             model: "transformer.h.7.ln_1.weight". The first part of the model has the embeddings, the last
//             one the last layer norm and the output layer.
// Tied        The first and the last stage hold the token embedding both, under one name. Pipeline::tie()
//             adds up their gradients; all ranks call it.
// Batch       tokens [n, t] of whole sequences on the ranks of the first stage, and targets of that shape on
//             those of the last: equal on all ranks of one copy of the model. A rank takes its part of each
//             sequence itself. Copies (data parallelism) have batches of their own.
// Loss        loss_function() is the mean cross entropy of a micro-batch's targets that are not ignore_index.
//             If the number of such targets differs between micro-batches, take the sum and count it:
//
//               dist::Pipeline pipeline(models::stages_of(model, net->chunks()),
//                                       net->loss_function({.reduction = at::Reduction::Sum}),
//                                       {.micro_batches = 8,
//                                        .reduction = dist::LossReduction::SUM,
//                                        .count = net->target_counter(),
//                                        .replicas = mesh.get_data_parallel_group(true)},
//                                       mesh.get_pipeline_model_parallel_group());
//
//             Over a context axis a rank's loss is that of its part of the sequences. Their average over
//             get_data_parallel_group(true) is the loss of all.
// Chunks      as many as the mesh's virtual_pipeline; two with ZB_V, which lie differently. Say the schedule
//             in the options of both, the model and the pipeline.
// Layers      `layers` says how many of them each part has, as balance_costs() does (pipeline/balance.h). By
//             default all have as many, give or take one.
// Collective  the constructor sends nothing. Forward and backward are collective over the tensor and context
//             groups.
// Fails       InvalidArgument: fewer layers than parts; layers that do not sum to n_layer; attn_pdrop over a
//             context axis; sequences that twice the context axis does not divide, and under
//             sequence_parallel their parts that the tensor axis does not; as TensorParallelGPT2.
// Text        generate() gives all ranks of one copy the same continuation, that of models::GPT2. All of them
//             call it, with the same tokens and options; the first rank of the last stage draws. A stage
//             works while the others wait, since each token follows from the one before.
// Source      Narayanan et al., 2021, arXiv 2104.04473.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "lockstep/job/model_parallel.h"
#include "lockstep/models/generate.h"
#include "lockstep/models/gpt2_config.h"
#include "lockstep/models/gpt2_parallel_parts.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/tensor_parallel/cross_entropy.h"

namespace lockstep::models {

struct PipelineGPT2Options {
  PipelineScheduleKind schedule = PipelineScheduleKind::ONE_F_ONE_B;  // says which parts a rank has
  bool sequence_parallel = false;
  std::vector<std::int64_t> layers = {};  // of each part of the model
};

struct GPT2LossOptions {
  std::int64_t ignore_index = -100;
  at::Reduction::Reduction reduction = at::Reduction::Mean;
};

// The layers and embeddings of this rank.
struct PipelineGPT2ModelImpl : torch::nn::Module {
  tensor_parallel::VocabParallelEmbedding wte{nullptr};
  torch::nn::Embedding wpe{nullptr};
  std::map<std::int64_t, tensor_parallel::ParallelTransformerLayer> h;  // by number in the whole model
  tensor_parallel::SequenceParallelLayerNorm ln_f{nullptr};
};
TORCH_MODULE(PipelineGPT2Model);

class PipelineGPT2Impl : public torch::nn::Module {
 public:
  PipelineGPT2Impl(const GPT2Config& config, const ModelParallel& mesh, PipelineGPT2Options options = {});

  // Runs one of this rank's parts. The first takes tokens, and the last returns this rank's logits.
  at::Tensor forward(const at::Tensor& input, int chunk = 0);
  int chunks() const { return shape_.virtual_stages; }

  PipelineLoss loss_function(const GPT2LossOptions& options = {}) const;
  // How many targets of a micro-batch count, on this rank's part of the sequences.
  std::function<double(at::TensorList targets)> target_counter(std::int64_t ignore_index = -100) const;
  // As models::GPT2::generate().
  at::Tensor generate(const at::Tensor& tokens, const GenerateOptions& options = {});
  // What Pipeline::tie() takes on this rank; undefined where there is nothing to tie.
  at::Tensor tied_weight() const;

  PipelineGPT2Model transformer{nullptr};
  tensor_parallel::VocabParallelEmbedding lm_head{nullptr};  // only with tie_word_embeddings = false

 private:
  bool has_part(int part) const { return shape_.rank_of(part) == stage_; }
  bool has_layer(std::int64_t layer) const;
  void make_transformer();
  at::Tensor own_targets(const at::Tensor& targets) const;
  at::Tensor receive_hidden(int part, at::IntArrayRef tokens) const;
  at::Tensor last_logits(const at::Tensor& window);

  const GPT2Config config_;
  const parts::Sharing sharing_;
  const ProcessGroup pipeline_;
  const PipelineShape shape_;
  const int stage_;                  // this rank's place in the pipeline
  std::vector<std::int64_t> first_;  // layer of each part, and the number of layers
};
TORCH_MODULE(PipelineGPT2);

// A stage for each chunk of `model`: a PipelineGPT2, or a wrapper around one. It refers to the model.
template <typename Model> std::vector<PipelineStage> stages_of(Model& model, int chunks) {
  std::vector<PipelineStage> stages;
  for (int chunk = 0; chunk < chunks; ++chunk)
    stages.emplace_back([&model, chunk](const at::Tensor& input) { return model->forward(input, chunk); });
  return stages;
}

}  // namespace lockstep::models
