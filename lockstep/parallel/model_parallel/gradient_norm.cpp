#include "lockstep/parallel/model_parallel/gradient_norm.h"

#include <torch/nn/module.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/parallel/tensor_parallel/model_state.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"

namespace lockstep {
namespace {

using Names = std::vector<std::string>;

void expect_norm(double max_norm) {
  if (!(max_norm >= 0))
    throw InvalidArgument(str("GradientNorm: clip_grad_norm_: max_norm is ", max_norm, ", not 0 or more"));
}

Names parameters_of(const torch::nn::Module& net) {
  Names names;
  for (const auto& entry : net.named_parameters()) names.push_back(entry.key());
  return names;
}

std::set<std::string> on_earlier_stages(const Names& mine, const ProcessGroup& pipeline) {
  const Acting acting(Purpose::GRADIENT_NORM);
  std::set<std::string> earlier;
  const std::vector<nlohmann::json> all = comm::all_gather_object(pipeline, nlohmann::json(mine));
  for (int stage = 0; stage < pipeline.rank(); ++stage)
    earlier.merge(all[static_cast<std::size_t>(stage)].get<std::set<std::string>>());
  return earlier;
}

}  // namespace

GradientNorm::GradientNorm(const torch::nn::Module& net, const ModelParallel& mesh)
    : net_(net), group_(mesh.get_model_parallel_group()), tensor_(mesh.get_tensor_model_parallel_group()) {
  std::set<std::string> pieces;
  for (const tensor_parallel::ParameterPiece& piece : tensor_parallel::named_pieces(net))
    pieces.insert(piece.name);
  const Names names = parameters_of(net);
  const std::set<std::string> earlier = on_earlier_stages(names, mesh.get_pipeline_model_parallel_group());
  const bool has_whole_ones = mesh.get_tensor_model_parallel_rank() == 0;
  for (const std::string& name : names)
    if ((pieces.contains(name) || has_whole_ones) && !earlier.contains(name)) counted_.insert(name);
}

void GradientNorm::reduce_norms(optim::Optimizer& optimizer) const {
  tensor_parallel::reduce_norms(optimizer, net_, tensor_);
  optimizer.reduce_norm_of_model(counted_, NormReducer(group_));
}

double GradientNorm::over_model(double squares) const {
  const Acting acting(Purpose::GRADIENT_NORM);
  comm::all_reduce(group_, std::span(&squares, 1), ReduceOp::SUM).wait();
  return std::sqrt(squares);
}

// NOLINTNEXTLINE(readability-identifier-naming): torch's name
double GradientNorm::clip_grad_norm_(ShardedDataParallelBase& model, double max_norm) {
  expect_norm(max_norm);
  double squares = 0;
  for (const auto& [name, square] : model.square_norms())
    if (counts(name)) squares += square;
  const double norm = over_model(squares);
  const double factor = max_norm / (norm + 1e-6);     // as clip_grads_with_norm_
  if (!(factor >= 1)) model.scale_gradients(factor);  // also for NaN
  return norm;
}

// NOLINTNEXTLINE(readability-identifier-naming): torch's name
double GradientNorm::clip_grad_norm_(double max_norm) {
  expect_norm(max_norm);
  std::vector<at::Tensor> counted;
  for (const auto& entry : net_.named_parameters())
    if (counts(entry.key()) && entry.value().grad().defined()) counted.push_back(entry.value().grad());
  const double own = get_total_norm(counted);
  const double norm = over_model(own * own);
  clip_grads_with_norm_(net_.parameters(), max_norm, norm);
  return norm;
}

}  // namespace lockstep
