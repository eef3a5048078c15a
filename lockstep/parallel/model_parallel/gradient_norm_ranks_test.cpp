#include "lockstep/parallel/model_parallel/gradient_norm.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/tensor_parallel/vocab_parallel_embedding.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep {
namespace gradient_norm_ranks_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t ROWS = 6, WIDTH = 2;

// Each stage has the embedding, which is tied, and a scale of its own, which tensor-parallel ranks have
// whole.
struct StageImpl : torch::nn::Module {
  explicit StageImpl(const ModelParallel& mesh) {
    wte = register_module(
        "wte", tensor_parallel::VocabParallelEmbedding(ROWS, WIDTH, mesh.get_tensor_model_parallel_group()));
    scale =
        register_parameter(lockstep::str("scale", mesh.get_pipeline_model_parallel_rank()), at::ones({3}));
  }
  // Gradients: 2 for each element of the embedding, 3 for each of the scale.
  at::Tensor forward(const at::Tensor& factor) { return factor * (2 * wte->weight.sum() + 3 * scale.sum()); }

  tensor_parallel::VocabParallelEmbedding wte{nullptr};
  at::Tensor scale;
};
TORCH_MODULE(Stage);

double expected_norm(const ModelParallel& mesh) {
  const int stages = mesh.get_pipeline_model_parallel_world_size();
  return std::sqrt(4.0 * ROWS * WIDTH + 9.0 * 3 * stages);
}

ModelParallelSizes sizes_of(int ranks) {
  return {.tensor = ranks > 1 ? 2 : 1, .pipeline = ranks > 2 ? 2 : 1};
}

RANKS_TEST(GradientNorm, CountsEachElementOnce, Ranks(1, 2, 4, 8)) {
  const ModelParallel mesh = init_model_parallel(sizes_of(size()));
  Stage net(mesh);
  net->forward(at::ones({})).backward();
  GradientNorm norm(*net, mesh);
  const double expected = expected_norm(mesh);
  EXPECT_NEAR(norm.clip_grad_norm_(1000), expected, 1e-6);
  EXPECT_NEAR(net->scale.grad()[0].item<double>(), 3, 1e-6);
  EXPECT_NEAR(norm.clip_grad_norm_(expected / 2), expected, 1e-6);
  EXPECT_NEAR(net->scale.grad()[0].item<double>(), 1.5, 1e-5);
  EXPECT_NEAR(net->wte->weight.grad()[0][0].item<double>(), 1, 1e-5);
  EXPECT_EQ(norm.counts("wte.weight"), mesh.get_pipeline_model_parallel_rank() == 0);
}

// Copies with factors of 1 and 3: the average is twice the gradients above.
RANKS_TEST(GradientNorm, OfShardsThatTheCopiesShareOut, Ranks(2, 4, 8), Backends("shm", "tcp")) {
  ModelParallelSizes sizes = sizes_of(size() / 2);
  sizes.data = 2;
  const ModelParallel mesh = init_model_parallel(sizes);
  Stage net(mesh);
  ShardedDataParallel<StageImpl> model(net, {.process_group = mesh.get_data_parallel_group(true)});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(1.0));
  GradientNorm norm(*net, mesh);
  const double expected = 2 * expected_norm(mesh);
  model.forward(at::full({}, 1 + 2 * mesh.get_data_parallel_rank())).backward();
  EXPECT_NEAR(norm.clip_grad_norm_(model, expected / 4), expected, 1e-5);
  optimizer.step();
  EXPECT_NEAR(net->scale[0].item<double>(), 1 - 1.5, 1e-5);  // a quarter of 6
}

// The first step of LAMB without adaptation moves a parameter of gradient g by lr * c / (c + eps), where c is
// g times max_grad_norm / (the norm of all gradients of the model).
double lamb_moves(double gradient, double norm, const optim::LAMBOptions& options) {
  const double clipped = gradient * options.max_grad_norm() / norm;
  return options.lr() * clipped / (clipped + options.eps());
}

optim::LAMBOptions clipping_lamb() {
  return optim::LAMBOptions(0.5).eps(1).weight_decay(0).adapt(false).max_grad_norm(2);
}

RANKS_TEST(GradientNorm, LambClipsByTheNormOfTheModel, Ranks(1, 2, 4, 8)) {
  const ModelParallel mesh = init_model_parallel(sizes_of(size()));
  Stage net(mesh);
  const at::Tensor before = net->wte->weight.detach().clone();
  optim::LAMB optimizer(net->named_parameters().pairs(), clipping_lamb());
  GradientNorm(*net, mesh).reduce_norms(optimizer);
  net->forward(at::ones({})).backward();
  optimizer.step();
  const double norm = expected_norm(mesh);
  EXPECT_NEAR(net->scale[0].item<double>(), 1 - lamb_moves(3, norm, clipping_lamb()), 1e-6);
  const at::Tensor moved = before - net->wte->weight.detach();
  EXPECT_NEAR(moved.min().item<double>(), lamb_moves(2, norm, clipping_lamb()), 1e-6);
  EXPECT_NEAR(moved.max().item<double>(), lamb_moves(2, norm, clipping_lamb()), 1e-6);
}

// The copies have factors of 1 and 3, which average to 2.
RANKS_TEST(GradientNorm, LambOfShardsClipsByTheNormOfTheModel, Ranks(2, 4, 8), Backends("shm", "tcp")) {
  ModelParallelSizes sizes = sizes_of(size() / 2);
  sizes.data = 2;
  const ModelParallel mesh = init_model_parallel(sizes);
  Stage net(mesh);
  ShardedDataParallel<StageImpl> model(net, {.process_group = mesh.get_data_parallel_group(true)});
  auto optimizer = model.optimizer<optim::LAMB>(clipping_lamb());
  GradientNorm(*net, mesh).reduce_norms(optimizer);
  model.forward(at::full({}, 1 + 2 * mesh.get_data_parallel_rank())).backward();
  optimizer.step();
  EXPECT_NEAR(net->scale[0].item<double>(), 1 - lamb_moves(6, 2 * expected_norm(mesh), clipping_lamb()),
              1e-6);
}

template <typename Optimizer, typename Options>
void expect_refused(Stage& net, const Options& options, const char* words) {
  Optimizer optimizer(net->named_parameters().pairs(), options);
  EXPECT_THAT([&] { optimizer.step(); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"wte.weight\""), HasSubstr(words),
                                                   HasSubstr("GradientNorm::reduce_norms(optimizer)"))));
}

RANKS_TEST(GradientNorm, WhatTakesNormsRefusesAPartOfTheModel, Ranks(2)) {
  const ModelParallel mesh = init_model_parallel({.tensor = 2});
  Stage net(mesh);
  net->forward(at::ones({})).backward();
  const auto adapting = optim::LAMBOptions(0.5);
  expect_refused<optim::LAMB>(net, adapting, "LAMB: parameter");
  expect_refused<optim::LAMB>(net, clipping_lamb(), "piece of a tensor-parallel parameter");
  expect_refused<optim::LARS>(net, optim::LARSOptions(0.5), "LARS: parameter");
  const auto plain = optim::LAMBOptions(adapting).adapt(false);
  optim::LAMB(net->named_parameters().pairs(), plain).step();  // takes no norm
  EXPECT_THAT([&] { clip_grad_norm_(net->parameters(), 1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("GradientNorm::clip_grad_norm_()")));

  ShardedDataParallel<StageImpl> model(net, {.process_group = mesh.get_data_parallel_group(true)});
  auto sharded = model.optimizer<optim::LAMB>(adapting);
  model.forward(at::ones({})).backward();
  EXPECT_THAT([&] { model.clip_grad_norm_(1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("GradientNorm::clip_grad_norm_()")));
  EXPECT_THAT([&] { sharded.step(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("GradientNorm::reduce_norms(optimizer)")));
}

RANKS_TEST(GradientNorm, OfWhatIsNotFiniteIsNotFinite, Ranks(4)) {
  const ModelParallel mesh = init_model_parallel({.tensor = 2, .pipeline = 2});
  Stage net(mesh);
  net->forward(at::ones({})).backward();
  if (rank() == 3) net->wte->weight.mutable_grad().fill_(NAN);  // tied: the first stage counts
  GradientNorm norm(*net, mesh);
  EXPECT_TRUE(std::isfinite(norm.clip_grad_norm_(1)));
  if (rank() == 1) net->wte->weight.mutable_grad().fill_(NAN);
  EXPECT_TRUE(std::isnan(norm.clip_grad_norm_(1)));
  EXPECT_THAT([&] { norm.clip_grad_norm_(-1); }, ThrowsMessage<InvalidArgument>(HasSubstr("max_norm is -1")));
}

}  // namespace
}  // namespace gradient_norm_ranks_test
}  // namespace lockstep
