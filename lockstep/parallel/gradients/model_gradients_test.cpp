#include "lockstep/parallel/gradients/model_gradients.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "testing/fake_ddp.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Wrapper WRAPPER{"SomeWrapper"};

// Two dense parameters in buckets of their own, and a sparse one: number 2.
struct ThreeGradients {
  void give(std::size_t index) {
    at::Tensor& grad = tensors[index].mutable_grad();
    grad = torch::ones_like(tensors[index]);
    if (index == 2) grad = grad.to_sparse();
    gradients.add(index, {});
  }

  std::vector<at::Tensor> tensors = {torch::zeros({4}).requires_grad_(true),
                                     torch::zeros({2}).requires_grad_(true),
                                     torch::zeros({3, 2}).requires_grad_(true)};
  NamedTensors dense = {{"four", tensors[0]}, {"two", tensors[1]}};
  ParameterClaims claims{tensors};
  ProcessGroup group{testing::fake_group()};
  PassExchange exchange{group};
  ModelGradients gradients{WRAPPER,
                           group,
                           dense,
                           {{"table", tensors[2]}},
                           bucket_plan(sizes_of(dense), reverse_order(2), {.first_bytes = 1, .bytes = 1})};
};

TEST(ModelGradients, NumbersDenseGradientsThenSparseOnes) {
  ThreeGradients three;
  ASSERT_EQ(three.gradients.size(), 3u);
  EXPECT_EQ(three.gradients.name(1), "two");
  EXPECT_EQ(three.gradients.name(2), "table");
  EXPECT_TRUE(three.gradients.any_requires_grad());
  EXPECT_EQ(three.gradients.frozen_since(), std::nullopt);
  three.tensors[2].requires_grad_(false);
  EXPECT_THAT(*three.gradients.frozen_since(),
              HasSubstr("\"table\" required one when the model was wrapped"));
}

TEST(ModelGradients, CompletesABucketWithItsLastGradient) {
  ThreeGradients three;
  three.gradients.begin_pass(three.claims);
  three.give(0);
  EXPECT_TRUE(three.gradients.arrivals().is_complete(1));
  EXPECT_THAT(three.gradients.without_gradient(), ElementsAre("two", "table"));
  three.give(2);
  three.gradients.leave_out(1);
  EXPECT_TRUE(three.gradients.arrivals().are_all_complete());
  EXPECT_THAT(*three.gradients.too_late(0, 0), HasSubstr("\"four\" got a second gradient in one backward()"));
  EXPECT_EQ(three.gradients.too_late(1, 0), std::nullopt);  // its bucket has not been started
  EXPECT_THAT(*three.gradients.too_late(1, 1), HasSubstr("\"two\" got a gradient after it was found unused"));
  three.gradients.end_pass();
}

TEST(ModelGradients, RefusesInTheNameOfItsWrapper) {
  ThreeGradients three;
  three.gradients.begin_pass(three.claims);
  three.tensors[2].mutable_grad() = torch::ones({3, 2});
  EXPECT_THAT([&] { three.gradients.add(2, {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("SomeWrapper on group \"")));
  three.gradients.end_pass();
  three.tensors[0].set_data(torch::zeros({5}));
  EXPECT_THAT([&] { three.gradients.refuse_changed(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("parameter \"four\" was Float [4]")));
}

TEST(ModelGradients, LaysGradientsOutInOtherBuckets) {
  ThreeGradients three;
  three.gradients.follow(bucket_plan(sizes_of(three.dense), std::vector<std::size_t>{0, 1}, {}));
  EXPECT_EQ(three.gradients.store().buckets(), 1u);
  three.gradients.begin_pass(three.claims);
  three.give(0);
  EXPECT_FALSE(three.gradients.arrivals().is_complete(0));
  three.give(1);
  EXPECT_TRUE(three.gradients.arrivals().is_complete(0));
  three.gradients.end_pass();
}

}  // namespace
}  // namespace lockstep
