#include "lockstep/autograd/graph_leaves.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>

namespace lockstep {
namespace {

std::vector<const void*> identities(const std::vector<at::Tensor>& tensors) {
  std::vector<const void*> found;
  for (const at::Tensor& tensor : tensors) found.push_back(tensor.unsafeGetTensorImpl());
  return found;
}

TEST(GraphLeaves, AreWhatBackwardAddsTo) {
  torch::nn::Linear net(3, 2), unused(3, 2);
  const at::Tensor x = torch::ones({1, 3}), wanted = torch::ones({2}, torch::requires_grad());
  const at::Tensor y = net->forward(x) * wanted + net->bias.detach() * unused->bias.detach();
  const std::vector<const void*> expected = identities({net->weight, net->bias, wanted});
  EXPECT_THAT(identities(graph_leaves({y, y.sum()})), ::testing::UnorderedElementsAreArray(expected));
  EXPECT_THAT(identities(graph_leaves({wanted})), ::testing::ElementsAre(wanted.unsafeGetTensorImpl()));
  EXPECT_TRUE(graph_leaves({at::Tensor(), x, y.detach()}).empty());
}

TEST(GraphLeaves, OfADeepGraphNeedNoStack) {
  const at::Tensor x = torch::ones({}, torch::requires_grad());
  at::Tensor y = x;
  for (int i = 0; i < 200'000; ++i) y = y + 1;
  EXPECT_EQ(graph_leaves({y}).size(), 1U);
}

}  // namespace
}  // namespace lockstep
