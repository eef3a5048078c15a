// The models of this room from meta_init() (tensor/meta_init.h) beside their ordinary construction.
#include "lockstep/tensor/meta_init.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "lockstep/models/gpt2.h"
#include "lockstep/models/resnet.h"
#include "lockstep/tensor/random_state.h"
#include "lockstep/tensor/state_dict.h"

namespace lockstep::models {
namespace {

template <typename Construct> auto expect_ordinary_values(const Construct& construct) {
  torch::manual_seed(11);
  const auto expected = construct();
  const at::Tensor after = get_rng_state();
  torch::manual_seed(11);
  auto net = meta_init(construct);
  EXPECT_TRUE(torch::equal(get_rng_state(), after));
  const NamedTensors ours = state_dict(*net), theirs = state_dict(*expected);
  EXPECT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_EQ(is_deferred(ours[i].second), ours[i].second.nbytes() > 4096) << ours[i].first;
  materialize(*net);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].second.strides(), theirs[i].second.strides()) << ours[i].first;
    EXPECT_TRUE(torch::equal(ours[i].second, theirs[i].second)) << ours[i].first;
  }
  return std::make_pair(net, expected);
}

TEST(MetaInitOfModels, GPT2) {
  for (const bool tied : {true, false}) {
    GPT2Config config{.vocab_size = 256, .n_positions = 64, .n_embd = 64, .n_layer = 3, .n_head = 4};
    config.tie_word_embeddings = tied;
    auto [net, expected] = expect_ordinary_values([&] { return GPT2(config); });
    const at::Tensor tokens = at::arange(12).view({1, 12});
    net->eval();
    expected->eval();
    EXPECT_TRUE(torch::equal(net->forward(tokens), expected->forward(tokens)));
  }
}

TEST(MetaInitOfModels, ResNet18) {
  auto [net, expected] = expect_ordinary_values([] { return resnet18({.num_classes = 10}); });
  const at::Tensor images = at::ones({1, 3, 64, 64});
  net->eval();
  expected->eval();
  EXPECT_TRUE(torch::equal(net->forward(images), expected->forward(images)));
}

}  // namespace
}  // namespace lockstep::models
