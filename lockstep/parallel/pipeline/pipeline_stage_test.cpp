#include "lockstep/parallel/pipeline/pipeline_stage.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pipeline/pipeline_skip.h"

namespace lockstep::pipeline_stage_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Tensors = std::vector<at::Tensor>;

struct OneImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x * 2; }
};
TORCH_MODULE(One);
struct PairImpl : torch::nn::Module {
  Tensors forward(const Tensors& in) { return {in[1], in[0]}; }
};
TORCH_MODULE(Pair);

TEST(PipelineStage, IsAModuleOrAFunctionOfOneTensorOrSeveral) {
  const at::Tensor x = torch::ones({2}), y = torch::zeros({1});
  const auto doubled = [&](const PipelineStage& stage) { EXPECT_TRUE(stage({x}).at(0).equal(x * 2)); };
  doubled(One());
  doubled(std::make_shared<OneImpl>());
  doubled(torch::nn::Sequential(One()));
  doubled([](const at::Tensor& in) { return in * 2; });
  doubled([](const at::Tensor& in) { return Tensors{in * 2, in}; });
  doubled([](const Tensors& in) { return in[0] * 2; });
  const auto swapped = [&](const PipelineStage& stage) { EXPECT_TRUE(stage({x, y}).at(0).equal(y)); };
  swapped(Pair());
  swapped([](const Tensors& in) { return Tensors{in[1], in[0]}; });
  const One one;
  const PipelineStage stage = one;
  EXPECT_THAT([&] { stage({x, y}); }, ThrowsMessage<InvalidArgument>(HasSubstr("takes one tensor got 2")));
}

TEST(PipelineStage, KnowsItsModule) {
  const One one;
  EXPECT_EQ(PipelineStage(one).module(), one.ptr());
  EXPECT_EQ(PipelineStage([](const at::Tensor& x) { return x; }, one).module(), one.ptr());
  EXPECT_EQ(PipelineStage([](const at::Tensor& x) { return x; }).module(), nullptr);
}

TEST(PipelineLoss, TakesTensorsOrVectors) {
  const at::Tensor x = torch::ones({2});
  const PipelineLoss one = [](const at::Tensor& output, const at::Tensor& target) {
    return (output - target).sum();
  };
  const PipelineLoss several = [](const Tensors& outputs, const Tensors& targets) {
    return outputs[1].sum() + static_cast<double>(targets.size());
  };
  EXPECT_EQ(one({x}, {x}).item<double>(), 0);
  EXPECT_EQ(several({x, x}, {}).item<double>(), 2);
  EXPECT_THAT([&] { one({x, x}, {x}); }, ThrowsMessage<InvalidArgument>(HasSubstr("got 2")));
}

TEST(PipelineSkip, WorksWithoutAPipeline) {
  const at::Tensor x = torch::ones({2});
  pipeline_stash("a", x);
  EXPECT_THAT([&] { pipeline_stash("a", x); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"a\" is stashed already")));
  {
    const PipelineSkipScope scope({{"b", x}});
    EXPECT_THAT([&] { pipeline_pop("a"); },
                ThrowsMessage<InvalidArgument>(HasSubstr("nothing is stashed as \"a\"")));
    pipeline_stash("a", x * 2);
    ASSERT_EQ(scope.left().size(), 2);
    EXPECT_EQ(scope.left()[1].first, "a");
  }
  EXPECT_TRUE(pipeline_pop("a").equal(x));
  EXPECT_THROW(pipeline_pop("a"), InvalidArgument);
  EXPECT_THROW(pipeline_stash("", x), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::pipeline_stage_test
