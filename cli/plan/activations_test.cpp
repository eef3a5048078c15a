#include "cli/plan/activations.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

// Two of the paper's models.
constexpr TransformerShape GPT3 = {.layers = 96, .hidden = 12288, .heads = 96, .sequence = 2048};
constexpr TransformerShape MT_NLG = {.layers = 105, .hidden = 20480, .heads = 128, .sequence = 2048};

double input_of(const TransformerShape& shape) {
  return static_cast<double>(shape.sequence * shape.micro_batch * shape.hidden);
}

TEST(PlanActivations, AreThePapersFormula) {
  // 5 a s/h is 80 for GPT-3 and 64 for MT-NLG, in its section 5.
  EXPECT_DOUBLE_EQ(activation_bytes(GPT3, Recompute::NONE), 96 * input_of(GPT3) * (34 + 80));
  EXPECT_DOUBLE_EQ(activation_bytes(MT_NLG, Recompute::NONE), 105 * input_of(MT_NLG) * (34 + 64));
}

TEST(PlanActivations, RecomputedKeepOneLayers) {
  EXPECT_DOUBLE_EQ(activation_bytes(GPT3, Recompute::SELECTIVE), input_of(GPT3) * (96 * 34 + 80));
  EXPECT_DOUBLE_EQ(activation_bytes(GPT3, Recompute::FULL), input_of(GPT3) * (96 * 2 + 34 + 80));
  // "70 % and 65 %" saved, which leave out that one layer.
  EXPECT_NEAR(activation_bytes(GPT3, Recompute::SELECTIVE) / activation_bytes(GPT3, Recompute::NONE), 0.30,
              0.01);
  EXPECT_NEAR(activation_bytes(MT_NLG, Recompute::SELECTIVE) / activation_bytes(MT_NLG, Recompute::NONE),
              0.35, 0.01);
}

TEST(PlanActivations, GrowWithTheBatchAndTheSquareOfTheSequence) {
  TransformerShape shape = {.layers = 2, .hidden = 8, .heads = 2, .sequence = 4, .micro_batch = 3};
  EXPECT_EQ(activation_bytes(shape, Recompute::NONE), 2 * (34 * 4 * 3 * 8 + 5 * 2 * 16 * 3));
  shape.sequence *= 2;
  EXPECT_EQ(activation_bytes(shape, Recompute::NONE), 2 * (34 * 8 * 3 * 8 + 5 * 2 * 64 * 3));
  shape.micro_batch *= 2;
  EXPECT_EQ(activation_bytes(shape, Recompute::NONE), 2 * (34 * 8 * 6 * 8 + 5 * 2 * 64 * 6));
}

// By hand, of float32: Q's, K's and V's input 1, Q and K 2, V 1, the input of the projection 1, two layer
// norms' inputs 2, the MLP's two inputs and GeLU's input 1 + 4 + 4: 16 of 4 bytes and two masks of 1. The
// scores: softmax's result and what dropout makes of it, 2 of 4 bytes and a mask.
TEST(PlanActivations, OfFloat32AreLessThanTwice) {
  EXPECT_DOUBLE_EQ(activation_bytes(GPT3, Recompute::NONE, 4), 96 * input_of(GPT3) * (66 + 9 * 16));
  EXPECT_DOUBLE_EQ(activation_bytes(GPT3, Recompute::FULL, 4), input_of(GPT3) * (96 * 4 + 66 + 9 * 16));
}

TEST(PlanActivations, OfEmbeddingAndOutputNeedAVocabulary) {
  TransformerShape shape = GPT3;
  shape.vocabulary = 51200;  // the paper's 4 s b h (1 + v/h) and s b h of the embedding's dropout
  EXPECT_DOUBLE_EQ(activation_bytes(shape, Recompute::NONE) - activation_bytes(GPT3, Recompute::NONE),
                   input_of(GPT3) * (1 + 4 + 4 * 51200.0 / 12288));
}

}  // namespace
}  // namespace lockstep::cli
