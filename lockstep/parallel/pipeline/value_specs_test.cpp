#include "lockstep/parallel/pipeline/value_specs.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

namespace lockstep::value_specs_test {
namespace {

using ::testing::Optional;

NamedTensors values() {
  return {{"", torch::ones({2, 8}).requires_grad_()},
          {"", torch::ones({3}, at::kLong)},
          {"", at::Tensor()},
          {"skip 1", torch::ones({}, at::kDouble)}};
}

TEST(ValueSpecs, TravelAsNumbers) {
  const ValueSpecs specs = specs_of(values());
  EXPECT_EQ(specs_of_words(words_of(specs)), specs);
  EXPECT_EQ(specs_of_words(words_of(ValueSpecs())), ValueSpecs());
  EXPECT_EQ(to_text(specs[0]), "[2, 8] float32");
  EXPECT_EQ(to_text(specs[1]), "[3] int64");
  EXPECT_EQ(to_text(specs[2]), "undefined");
  EXPECT_EQ(to_text(specs[3]), "[] float64, skip \"skip 1\"");
}

TEST(ValueSpecs, MakeMemory) {
  const ValueSpecs specs = specs_of(values());
  const NamedTensors zeros = zero_values(specs);
  ASSERT_EQ(zeros.size(), 4);
  EXPECT_TRUE(zeros[0].second.equal(torch::zeros({2, 8})));
  EXPECT_TRUE(zeros[1].second.equal(torch::zeros({3}, at::kLong)));
  EXPECT_FALSE(zeros[2].second.defined());
  EXPECT_EQ(zeros[3].first, "skip 1");
  EXPECT_EQ(empty_value(specs[0]).sizes(), at::IntArrayRef({2, 8}));
  EXPECT_EQ(empty_value(specs[1]).scalar_type(), at::kLong);
  EXPECT_FALSE(empty_value(specs[2]).defined());
  EXPECT_EQ(bytes_of(specs[0]), 64U);
  EXPECT_EQ(bytes_of(specs[2]), 0U);
  EXPECT_EQ(bytes_of(specs[3]), 8U);
}

TEST(ValueSpecs, OfGradientsHaveNoNames) {
  ValueSpecs specs = specs_of(values());
  specs[3].requires_grad = true;
  const ValueSpecs gradients = gradient_specs(specs);
  ASSERT_EQ(gradients.size(), 2);
  EXPECT_EQ(to_text(gradients[0]), "[2, 8] float32");
  EXPECT_EQ(to_text(gradients[1]), "[] float64");
}

TEST(ValueSpecs, NameTheFirstDifference) {
  const ValueSpecs agreed = specs_of(values());
  EXPECT_EQ(first_difference(agreed, agreed, true), std::nullopt);
  ValueSpecs other = agreed;
  other[1].sizes = {4};
  EXPECT_THAT(first_difference(agreed, other, true),
              Optional(std::string("value 1 as [4] int64, where [3] int64 was agreed")));
  other = agreed;
  other[0].requires_grad = false;
  EXPECT_THAT(
      first_difference(agreed, other, true),
      Optional(std::string("value 0 as [2, 8] float32, where [2, 8] float32 with a gradient was agreed")));
  EXPECT_EQ(first_difference(agreed, other, false), std::nullopt);
  other = agreed;
  other.pop_back();
  EXPECT_THAT(first_difference(agreed, other, true),
              Optional(std::string("3 values, where 4 were agreed (outputs and skip tensors)")));
}

TEST(ValueSpecs, SignaturesTellFormsApartAndIgnoreRows) {
  const auto signature = [](const at::Tensor& tensor) { return signature_of({tensor}); };
  EXPECT_EQ(signature(torch::ones({2, 8})), signature(torch::ones({5, 8})));
  EXPECT_NE(signature(torch::ones({2, 8})), signature(torch::ones({2, 9})));
  EXPECT_NE(signature(torch::ones({2, 8})), signature(torch::ones({2, 8}, at::kDouble)));
  EXPECT_NE(signature(torch::ones({2, 8})), signature(torch::ones({2, 8, 1})));
  EXPECT_NE(signature(torch::ones({2, 8})), signature_of({torch::ones({2, 8}), at::Tensor()}));
}

}  // namespace
}  // namespace lockstep::value_specs_test
