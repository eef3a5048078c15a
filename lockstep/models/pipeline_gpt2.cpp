#include "lockstep/models/pipeline_gpt2.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/models/eval_mode.h"
#include "lockstep/models/gpt2_parallel_generate.h"
#include "lockstep/parallel/context_parallel/ring_attention.h"
#include "lockstep/parallel/pipeline/balance.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/point_to_point.h"

namespace lockstep::models {
namespace {

namespace tp = tensor_parallel;

parts::Sharing sharing_of(const ModelParallel& mesh, bool sequence_parallel) {
  parts::Sharing sharing{.group = mesh.get_tensor_model_parallel_group(),
                         .sequence_parallel = sequence_parallel};
  if (mesh.get_context_parallel_world_size() > 1) sharing.context = mesh.get_context_parallel_group();
  return sharing;
}

PipelineShape shape_of(const ModelParallel& mesh, PipelineScheduleKind schedule) {
  PipelineShape shape{.kind = schedule,
                      .stages = mesh.get_pipeline_model_parallel_world_size(),
                      .virtual_stages = mesh.get_virtual_pipeline_model_parallel_world_size()};
  if (schedule == PipelineScheduleKind::ZB_V) shape.virtual_stages = 2;
  static_cast<void>(pipeline_schedule(shape));  // refuses what cannot be
  return shape;
}

// Begin of each part, and the end of the last.
std::vector<std::int64_t> first_layers(const GPT2Config& config, int parts,
                                       std::vector<std::int64_t> layers) {
  if (layers.empty())
    layers = balance_costs(std::vector<double>(static_cast<std::size_t>(config.n_layer), 1), parts);
  const std::int64_t sum = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
  if (static_cast<int>(layers.size()) != parts || sum != config.n_layer ||
      std::any_of(layers.begin(), layers.end(), [](std::int64_t count) { return count < 0; }))
    throw InvalidArgument(lockstep::str("PipelineGPT2: `layers` has ", layers.size(), " parts with ", sum,
                                        " layers together; expected ", parts, " parts and ", config.n_layer,
                                        " layers, each part 0 or more"));
  std::vector<std::int64_t> first = {0};
  for (const std::int64_t count : layers) first.push_back(first.back() + count);
  return first;
}

// Registers its modules under the names that they have in a list of all.
struct NumberedModules : torch::nn::Module {
  template <typename Holder> void add(std::int64_t number, const Holder& module) {
    register_module(std::to_string(number), module);
  }
};

}  // namespace

PipelineGPT2Impl::PipelineGPT2Impl(const GPT2Config& config, const ModelParallel& mesh,
                                   PipelineGPT2Options options)
    : config_(parts::checked(config)),
      sharing_(sharing_of(mesh, options.sequence_parallel)),
      pipeline_(mesh.get_pipeline_model_parallel_group()),
      shape_(shape_of(mesh, options.schedule)),
      stage_(mesh.get_pipeline_model_parallel_rank()),
      first_(first_layers(config, shape_.parts(), std::move(options.layers))) {
  make_transformer();
  if (config_.tie_word_embeddings) return;
  const auto output = parts::output_layer(config_, sharing_);
  if (has_part(shape_.parts() - 1)) lm_head = register_module("lm_head", output);
}

bool PipelineGPT2Impl::has_layer(std::int64_t layer) const {
  const auto next = std::upper_bound(first_.begin(), first_.end(), layer);
  return has_part(static_cast<int>(next - first_.begin()) - 1);
}

// Everything is made in the order of the whole model, because each draws its first values; what is not this
// rank's goes at once.
void PipelineGPT2Impl::make_transformer() {
  const bool is_first = has_part(0), is_last = has_part(shape_.parts() - 1);
  transformer = register_module("transformer", PipelineGPT2Model());
  const auto wte = parts::token_embedding(config_, sharing_);
  if (is_first || (is_last && config_.tie_word_embeddings))
    transformer->wte = transformer->register_module("wte", wte);
  const auto wpe = parts::position_embedding(config_);
  if (is_first) transformer->wpe = transformer->register_module("wpe", wpe);
  const auto layers = transformer->register_module("h", std::make_shared<NumberedModules>());
  const tp::TransformerConfig layer_config = parts::layer_config(config_, sharing_);
  for (std::int64_t i = 0; i < config_.n_layer; ++i) {
    const tp::ParallelTransformerLayer layer(layer_config, sharing_.group);
    if (!has_layer(i)) continue;
    layers->add(i, layer);
    transformer->h.emplace(i, layer);
  }
  if (is_last)
    transformer->ln_f = transformer->register_module(
        "ln_f", tp::SequenceParallelLayerNorm(config_.n_embd, config_.layer_norm_epsilon,
                                              sharing_.sequence_parallel, sharing_.group));
}

at::Tensor PipelineGPT2Impl::forward(const at::Tensor& input, int chunk) {
  const int part = shape_.part_of(stage_, chunk);
  at::Tensor x =
      part > 0 ? input
               : parts::embed(input, transformer->wte, transformer->wpe, config_, sharing_, is_training());
  const auto at = [&](int of_part) { return first_[static_cast<std::size_t>(of_part)]; };
  for (std::int64_t i = at(part); i < at(part + 1); ++i) x = transformer->h.at(i)->forward(x);
  if (part + 1 < shape_.parts()) return x;
  const at::Tensor& rows = lm_head.is_empty() ? transformer->wte->weight : lm_head->weight;
  return parts::logits_of(transformer->ln_f(x), rows, sharing_);
}

at::Tensor PipelineGPT2Impl::own_targets(const at::Tensor& targets) const {
  return sharing_.context ? context_parallel::sequence_part(targets, 1, *sharing_.context) : targets;
}

PipelineLoss PipelineGPT2Impl::loss_function(const GPT2LossOptions& options) const {
  return [this, options](const at::Tensor& logits, const at::Tensor& targets) {
    const at::Tensor own = own_targets(targets);
    return tp::vocab_parallel_cross_entropy(logits, sharing_.sequence_parallel ? own.t() : own,
                                            sharing_.group,
                                            {.vocab_size = config_.vocab_size,
                                             .ignore_index = options.ignore_index,
                                             .reduction = options.reduction});
  };
}

std::function<double(at::TensorList)> PipelineGPT2Impl::target_counter(std::int64_t ignore_index) const {
  return [this, ignore_index](at::TensorList targets) {
    return own_targets(targets.front()).ne(ignore_index).sum().item<double>();
  };
}

// Activations of that part for tokens [n, t]. The stage before sends them.
at::Tensor PipelineGPT2Impl::receive_hidden(int part, at::IntArrayRef tokens) const {
  const std::int64_t rows = tokens[0];
  const std::int64_t length = tokens[1] / (sharing_.context ? sharing_.context->size() : 1);
  const auto options = parameters().front().options().requires_grad(false);
  const at::Tensor hidden = sharing_.sequence_parallel
                                ? at::empty({length / sharing_.group.size(), rows, config_.n_embd}, options)
                                : at::empty({rows, length, config_.n_embd}, options);
  recv(hidden, GroupRank{shape_.rank_of(part - 1)}, pipeline_);
  return hidden;
}

// On the ranks of the last stage; zeros on others.
at::Tensor PipelineGPT2Impl::last_logits(const at::Tensor& window) {
  const at::Tensor input = parts::padded(window, sharing_);
  const int last = shape_.parts() - 1;
  at::Tensor x = input;
  for (int part = 0; part <= last; ++part) {
    if (!has_part(part)) continue;
    if (part > 0 && !has_part(part - 1)) x = receive_hidden(part, input.sizes());
    x = forward(x, shape_.chunk_of(part));
    if (part < last && !has_part(part + 1))
      send(x.contiguous(), GroupRank{shape_.rank_of(part + 1)}, pipeline_);
  }
  if (!has_part(last)) return at::zeros({window.size(0), 1, config_.vocab_size}, window.device());
  return parts::logits_at(window.size(1) - 1, x, input.size(1), config_, sharing_);
}

at::Tensor PipelineGPT2Impl::generate(const at::Tensor& tokens, const GenerateOptions& options) {
  const EvalMode eval(*this);
  const GroupRank last_stage{shape_.rank_of(shape_.parts() - 1)};
  return models::generate([&](const at::Tensor& window) { return last_logits(window); }, tokens,
                          parts::bounded(options, config_, sharing_),
                          [&](const at::Tensor& next) {
                            const at::Tensor of_stage = parts::agreed(next, sharing_);
                            broadcast(of_stage, last_stage, pipeline_);
                            return of_stage;
                          });
}

at::Tensor PipelineGPT2Impl::tied_weight() const {
  const bool is_tied = config_.tie_word_embeddings && !transformer->wte.is_empty();
  return is_tied ? transformer->wte->weight : at::Tensor();
}

}  // namespace lockstep::models
