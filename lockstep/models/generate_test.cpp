#include "lockstep/models/generate.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

constexpr std::int64_t VOCABULARY = 11;

std::vector<std::int64_t> values_of(const at::Tensor& tokens) {
  const at::Tensor flat = tokens.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

// The token after `x` is surely 3 * x + 1 (mod 11).
at::Tensor successor_logits(const at::Tensor& tokens) {
  return at::one_hot((3 * tokens + 1).remainder(VOCABULARY), VOCABULARY).to(at::kFloat);
}

// Of every place the same: token i has the logit i.
at::Tensor rising_logits(const at::Tensor& tokens) {
  return at::arange(VOCABULARY).to(at::kFloat).expand({tokens.size(0), tokens.size(1), VOCABULARY});
}

TEST(Generate, GreedyTakesTheLikeliest) {
  const at::Tensor tokens = at::tensor({7, 0, 5, 4}, at::kLong).view({2, 2});
  EXPECT_EQ(values_of(generate(successor_logits, tokens, {.max_new_tokens = 4})),
            (std::vector<std::int64_t>{7, 0, 1, 4, 2, 7, 5, 4, 2, 7, 0, 1}));
  EXPECT_EQ(values_of(generate(successor_logits, tokens, {.max_new_tokens = 0})), values_of(tokens));
  const auto last_place_alone = [](const at::Tensor& x) {
    return successor_logits(x.slice(1, x.size(1) - 1));
  };
  EXPECT_EQ(values_of(generate(last_place_alone, tokens, {.max_new_tokens = 4})),
            values_of(generate(successor_logits, tokens, {.max_new_tokens = 4})));
  const auto all_alike = [](const at::Tensor& x) { return at::zeros({x.size(0), x.size(1), VOCABULARY}); };
  EXPECT_EQ(values_of(generate(all_alike, tokens, {.max_new_tokens = 1})),
            (std::vector<std::int64_t>{7, 0, 0, 5, 4, 0}));
}

TEST(Generate, ARowThatEndedRepeatsTheEnd) {
  const at::Tensor tokens = at::tensor({0, 4, 1}, at::kLong).view({3, 1});  // 0 1 4 2 7 0, ...
  EXPECT_EQ(values_of(generate(successor_logits, tokens, {.max_new_tokens = 9, .eos_token_id = 2})),
            (std::vector<std::int64_t>{0, 1, 4, 2, 4, 2, 2, 2, 1, 4, 2, 2}));
}

TEST(Generate, ForwardSeesTheContext) {
  std::vector<std::int64_t> lengths;
  const auto forward = [&](const at::Tensor& window) {
    lengths.push_back(window.size(1));
    EXPECT_FALSE(at::GradMode::is_enabled());
    return successor_logits(window);
  };
  const at::Tensor tokens = at::zeros({1, 2}, at::kLong);
  const auto all = values_of(generate(forward, tokens, {.max_new_tokens = 5}));
  EXPECT_THAT(std::exchange(lengths, {}), ::testing::ElementsAre(2, 3, 4, 5, 6));
  EXPECT_EQ(values_of(generate(forward, tokens, {.max_new_tokens = 5, .context = 3})), all);
  EXPECT_THAT(lengths, ::testing::ElementsAre(2, 3, 3, 3, 3));
}

// Token i comes with the probability exp(i / temperature) / sum, among the top_k: within five standard
// deviations of as many draws.
TEST(Generate, DrawsBySoftmax) {
  constexpr std::int64_t ROWS = 40'000;
  for (const double temperature : {0.7, 2.0}) {
    for (const std::int64_t top_k : {0, 1, 3, 11, 50}) {
      SCOPED_TRACE(::testing::Message() << "temperature " << temperature << ", top_k " << top_k);
      const at::Tensor drawn = generate(rising_logits, at::zeros({ROWS, 1}, at::kLong),
                                        {.max_new_tokens = 1,
                                         .do_sample = true,
                                         .temperature = temperature,
                                         .top_k = top_k,
                                         .generator = at::detail::createCPUGenerator(1)});
      const at::Tensor counts = drawn.select(1, 1).bincount({}, VOCABULARY);
      const std::int64_t first = top_k == 0 || top_k > VOCABULARY ? 0 : VOCABULARY - top_k;
      double sum = 0;
      for (std::int64_t i = first; i < VOCABULARY; ++i) sum += std::exp(static_cast<double>(i) / temperature);
      for (std::int64_t i = 0; i < VOCABULARY; ++i) {
        const double p = i < first ? 0 : std::exp(static_cast<double>(i) / temperature) / sum;
        const double deviation = std::sqrt(static_cast<double>(ROWS) * p * (1 - p));
        EXPECT_NEAR(counts[i].item<double>(), static_cast<double>(ROWS) * p, 5 * deviation + 1e-6) << i;
      }
    }
  }
}

TEST(Generate, TheSameGeneratorGivesTheSame) {
  const auto sample = [](std::uint64_t seed) {
    return values_of(generate(rising_logits, at::zeros({2, 1}, at::kLong),
                              {.max_new_tokens = 30,
                               .do_sample = true,
                               .temperature = 5,
                               .generator = at::detail::createCPUGenerator(seed)}));
  };
  EXPECT_EQ(sample(3), sample(3));
  EXPECT_NE(sample(3), sample(4));
}

TEST(Generate, RefusesWhatIsOutOfRange) {
  const at::Tensor tokens = at::zeros({1, 1}, at::kLong);
  EXPECT_THROW(generate(rising_logits, tokens, {.max_new_tokens = -1}), InvalidArgument);
  EXPECT_THROW(generate(rising_logits, tokens, {.temperature = 0}), InvalidArgument);
  EXPECT_THROW(generate(rising_logits, tokens, {.temperature = INFINITY}), InvalidArgument);
  EXPECT_THROW(generate(rising_logits, tokens, {.temperature = NAN}), InvalidArgument);
  EXPECT_THROW(generate(rising_logits, tokens, {.top_k = -1}), InvalidArgument);
  EXPECT_THROW(generate(rising_logits, tokens, {.context = -1}), InvalidArgument);
  EXPECT_THROW(generate(rising_logits, tokens.to(at::kFloat)), InvalidArgument);
  EXPECT_THROW(generate(rising_logits, tokens.flatten()), InvalidArgument);
  EXPECT_THROW(generate(rising_logits, at::zeros({1, 0}, at::kLong)), InvalidArgument);
  const auto flat = [](const at::Tensor& x) { return at::zeros({x.numel(), VOCABULARY}); };
  EXPECT_THROW(generate(flat, tokens), InvalidArgument);
  const auto too_long = [](const at::Tensor& x) { return at::zeros({1, x.size(1) + 2, VOCABULARY}); };
  EXPECT_THROW(generate(too_long, tokens), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::models
