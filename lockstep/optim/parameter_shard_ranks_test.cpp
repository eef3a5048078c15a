// Optimisers whose parameters lie in shards on several ranks, beside libtorch's in one process, or the
// formula for whole tensors.
#include "lockstep/optim/parameter_shard.h"

#include <gmock/gmock.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/sgd.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

namespace lockstep::optim {
namespace {

using testing::random_values;

const std::vector<std::vector<std::int64_t>> SHAPES = {
    {6, 5}, {7}, {2}};  // some ranks have no part of the last
constexpr int STEPS = 4;

// The same parameters twice: whole in this process, and this rank's shards of them.
struct Shards {
  Shards() {
    for (std::size_t i = 0; i < SHAPES.size(); ++i) {
      whole.push_back(random_values(SHAPES[i], i).requires_grad_(true));
      const auto [begin, count] = part(i);
      mine.push_back({.name = "p" + std::to_string(i),
                      .shape = SHAPES[i],
                      .offset = begin,
                      .tensor = part_of(whole[i].detach(), i).clone().requires_grad_(true)});
    }
  }
  std::pair<std::int64_t, std::int64_t> part(std::size_t i) const {
    const std::int64_t count = whole[i].numel();
    const std::int64_t begin = count * world().rank() / world().size();
    return {begin, count * (world().rank() + 1) / world().size() - begin};
  }
  at::Tensor part_of(const at::Tensor& tensor, std::size_t i) const {
    const auto [begin, count] = part(i);
    return tensor.flatten().narrow(0, begin, count);
  }
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> found;
    for (const ParameterShard& shard : mine) found.push_back(shard.tensor);
    return found;
  }
  void set_gradients(int step) {
    for (std::size_t i = 0; i < SHAPES.size(); ++i) {
      const at::Tensor gradient = random_values(SHAPES[i], 100 + 10 * step + i);
      whole[i].mutable_grad() = gradient;
      mine[i].tensor.mutable_grad() = part_of(gradient, i).clone();
    }
  }
  void expect_close(const char* what) const {
    for (std::size_t i = 0; i < SHAPES.size(); ++i)
      EXPECT_TRUE(torch::allclose(mine[i].tensor, part_of(whole[i], i), 1e-12, 1e-13)) << what << ' ' << i;
  }

  std::vector<at::Tensor> whole;
  std::vector<ParameterShard> mine;
};

template <typename Ours, typename Theirs, typename Options, typename TheirOptions>
void compare_with_libtorch(const char* what, const Options& options, const TheirOptions& theirs) {
  Shards shards;
  Shards again;  // our optimiser with whole parameters: the same bits
  Ours ours(std::vector<ParamGroup>(), options);
  ours.add_param_group(shards.mine);
  Theirs whole(shards.whole, theirs);
  Ours ours_whole(again.whole, options);
  for (int step = 0; step < STEPS; ++step) {
    shards.set_gradients(step);
    again.set_gradients(step);
    ours.step();
    whole.step();
    ours_whole.step();
  }
  shards.expect_close(what);
  for (std::size_t i = 0; i < SHAPES.size(); ++i)
    EXPECT_TRUE(torch::equal(shards.mine[i].tensor, again.part_of(again.whole[i], i))) << what << ' ' << i;
}

RANKS_TEST(ParameterShard, AdamStepsAShardAsTheWhole, Ranks(1, 2, 3)) {
  compare_with_libtorch<Adam, torch::optim::Adam>(
      "Adam", AdamOptions(0.1).weight_decay(0.1).amsgrad(true),
      torch::optim::AdamOptions(0.1).weight_decay(0.1).amsgrad(true));
  compare_with_libtorch<AdamW, torch::optim::AdamW>("AdamW", AdamWOptions(0.1).weight_decay(0.1),
                                                    torch::optim::AdamWOptions(0.1).weight_decay(0.1));
}

// The formula at the head of lamb.h; parameters of one dimension have neither decay nor adaptation.
RANKS_TEST(ParameterShard, LambTakesTheNormsOfTheWhole, Ranks(1, 2, 3)) {
  constexpr double MOST = 2;
  Shards shards;
  LAMB optimizer(std::vector<ParamGroup>(), LAMBOptions(0.1).weight_decay(0.2).max_grad_norm(MOST));
  optimizer.add_param_group(shards.mine);
  optimizer.reduce_norms(NormReducer(world()));
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> m, v;
  for (const at::Tensor& p : shards.whole) {
    m.push_back(torch::zeros_like(p));
    v.push_back(torch::zeros_like(p));
  }
  for (int step = 0; step < STEPS; ++step) {
    shards.set_gradients(step);
    optimizer.step();
    double squares = 0;
    for (const at::Tensor& p : shards.whole) squares += p.grad().pow(2).sum().item<double>();
    const double factor = std::min(1.0, MOST / std::sqrt(squares));
    for (std::size_t i = 0; i < SHAPES.size(); ++i) {
      at::Tensor& p = shards.whole[i];
      const bool adapted = SHAPES[i].size() > 1;
      const at::Tensor g = p.grad() * factor;
      m[i] = m[i] * 0.9 + g * 0.1;
      v[i] = v[i] * 0.999 + g * g * 0.001;
      const at::Tensor u =
          m[i] / (1 - std::pow(0.9, step + 1)) / ((v[i] / (1 - std::pow(0.999, step + 1))).sqrt() + 1e-6) +
          p * (adapted ? 0.2 : 0.0);
      const double ratio = adapted ? (p.norm() / u.norm()).item<double>() : 1;
      p.sub_(u * (0.1 * ratio));
    }
  }
  shards.expect_close("LAMB");
}

// Algorithm 1 of the paper, as the head of lars.h has it.
RANKS_TEST(ParameterShard, LarsTakesTheNormsOfTheWhole, Ranks(1, 2, 3)) {
  Shards shards;
  LARS optimizer(std::vector<ParamGroup>(), LARSOptions(0.5).momentum(0.9).weight_decay(0.1));
  optimizer.add_param_group(shards.mine);
  optimizer.reduce_norms(NormReducer(world()));
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& p : shards.whole) buffers.push_back(torch::zeros_like(p));
  for (int step = 0; step < STEPS; ++step) {
    shards.set_gradients(step);
    optimizer.step();
    for (std::size_t i = 0; i < SHAPES.size(); ++i) {
      at::Tensor& p = shards.whole[i];
      const bool adapted = SHAPES[i].size() > 1;
      const double decay = adapted ? 0.1 : 0;
      const at::Tensor of_param = p.norm();
      const double ratio =
          adapted ? (1e-3 * of_param / (p.grad().norm() + decay * of_param)).item<double>() : 1;
      buffers[i] = buffers[i] * 0.9 + (p.grad() + p * decay) * (0.5 * ratio);
      p.sub_(buffers[i]);
    }
  }
  shards.expect_close("LARS");
}

RANKS_TEST(ParameterShard, ClippingTakesTheNormOfTheWhole, Ranks(1, 2, 3)) {
  for (const double norm_type : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    Shards shards;
    shards.set_gradients(0);
    const double expected = torch::nn::utils::clip_grad_norm_(shards.whole, 0.5, norm_type);
    const double norm = clip_grad_norm_(shards.tensors(), 0.5, norm_type, false, NormReducer(world()));
    EXPECT_NEAR(norm, expected, 1e-12 * expected) << norm_type;
    for (std::size_t i = 0; i < SHAPES.size(); ++i) {
      const at::Tensor whole = shards.part_of(shards.whole[i].grad(), i);
      EXPECT_TRUE(torch::allclose(shards.mine[i].tensor.grad(), whole, 1e-12, 1e-13)) << norm_type;
    }
  }
}

RANKS_TEST(ParameterShard, EachRankLearnsThatANormIsNotFinite, Ranks(2, 3)) {
  Shards shards;
  shards.set_gradients(0);
  if (rank() == 1) shards.mine[0].tensor.mutable_grad()[0] = std::nan("");
  EXPECT_THROW(clip_grad_norm_(shards.tensors(), 0.5, 2.0, true, NormReducer(world())), InvalidArgument);
  EXPECT_TRUE(std::isnan(get_total_norm(
      {shards.mine[0].tensor.grad()}, std::numeric_limits<double>::infinity(), false, NormReducer(world()))));
}

RANKS_TEST(ParameterShard, IsAPartOfItsParameter, Ranks(1)) {
  const auto add = [](std::int64_t offset, at::Tensor tensor) {
    SGD optimizer(std::vector<ParamGroup>(), SGDOptions(0.1));
    optimizer.add_param_group({ParameterShard{"w", {2, 4}, offset, std::move(tensor)}});
  };
  add(0, torch::zeros({2, 4}));
  add(3, torch::zeros({5}));
  EXPECT_THROW(add(4, torch::zeros({5})), InvalidArgument);
  EXPECT_THROW(add(-1, torch::zeros({5})), InvalidArgument);
  EXPECT_THROW(add(0, torch::zeros({4, 2})), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::optim
