#include "lockstep/optim/model_part.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/optim/clip_grad.h"

namespace lockstep::optim {
namespace model_part_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(ModelPart, AMarkStaysWithTheTensor) {
  torch::nn::Linear net(3, 2);
  EXPECT_FALSE(is_part(net->weight, ModelPart::PIECE));
  mark_as_part(net->weight, ModelPart::PIECE);
  EXPECT_TRUE(is_part(net->weight, ModelPart::PIECE));
  EXPECT_FALSE(is_part(net->weight, ModelPart::STAGE));
  mark_as_part(net->weight, ModelPart::STAGE);
  net->to(torch::kDouble);
  EXPECT_TRUE(is_part(net->parameters()[0], ModelPart::PIECE));
  EXPECT_TRUE(is_part(net->parameters()[0], ModelPart::STAGE));
  EXPECT_FALSE(is_part(net->weight.clone(), ModelPart::PIECE));
  EXPECT_FALSE(is_part(net->bias, ModelPart::STAGE));
}

// A new tensor may lie where one with a mark was.
TEST(ModelPart, ATensorThatIsGoneLeavesNoMark) {
  for (int i = 0; i < 5000; ++i) {
    const at::Tensor tensor = at::empty({1});
    ASSERT_FALSE(is_part(tensor, ModelPart::PIECE)) << i;
    mark_as_part(tensor, ModelPart::PIECE);
  }
}

TEST(ModelPart, ItsGradientsHaveNotTheNormOfTheModel) {
  std::vector<at::Tensor> parameters = {at::zeros({2}), at::zeros({3}), at::zeros({4})};
  for (at::Tensor& parameter : parameters) parameter.mutable_grad() = at::ones_like(parameter);
  EXPECT_EQ(clip_grad_norm_(parameters, 10), 3);
  EXPECT_THAT(why_not_the_models_norm(parameters), IsEmpty());
  mark_as_part(parameters[1], ModelPart::PIECE);
  EXPECT_THAT([&] { clip_grad_norm_(parameters, 10); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("clip_grad_norm_: parameter 1, of shape [3]"),
                                                   HasSubstr("piece of a tensor-parallel parameter"),
                                                   HasSubstr("tensor_parallel::clip_grad_norm_("))));
  mark_as_part(parameters[0], ModelPart::STAGE);
  EXPECT_THAT(
      [&] { clip_grad_norm_(parameters, 10); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("parameter 0, of shape [2], belongs to one stage"),
                                           HasSubstr("GradientNorm::clip_grad_norm_()"))));
}

}  // namespace
}  // namespace model_part_test
}  // namespace lockstep::optim
